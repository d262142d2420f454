// Places the nodes of a graph and routes its edges as curves.

import dagre from '@dagrejs/dagre';

export interface GraphBox {
  id: string;
  width: number;
  height: number;
}

export interface GraphLink {
  from: string;
  to: string;
  /** The space to reserve for a label. */
  label?: { width: number; height: number };
}

export interface GraphLayout {
  width: number;
  height: number;
  nodes: Map<string, { x: number; y: number }>;
  /** In the order the links were given. */
  edges: { path: string; middle: { x: number; y: number } }[];
}

export interface LayoutOptions {
  direction: 'right' | 'down';
  rankGap?: number;
  nodeGap?: number;
}

interface Point {
  x: number;
  y: number;
}

const MARGIN = 24;
/** The height of a link from a node to itself. */
const LOOP_HEIGHT = 34;

export function layoutGraph(boxes: readonly GraphBox[], links: readonly GraphLink[], options: LayoutOptions): GraphLayout {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  const loops = links.some((link) => link.from === link.to);
  graph.setGraph({
    rankdir: options.direction === 'right' ? 'LR' : 'TB',
    ranksep: options.rankGap ?? 64,
    nodesep: options.nodeGap ?? 36,
    edgesep: 18,
    marginx: MARGIN,
    marginy: loops ? MARGIN + LOOP_HEIGHT + 20 : MARGIN,
  });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const box of boxes) graph.setNode(box.id, { width: box.width, height: box.height });
  const sizes = new Map(boxes.map((box) => [box.id, box]));
  links.forEach((link, index) => {
    if (link.from === link.to || !sizes.has(link.from) || !sizes.has(link.to)) return;
    graph.setEdge(link.from, link.to, { width: link.label?.width ?? 8, height: link.label?.height ?? 8, labelpos: 'c' }, String(index));
  });
  dagre.layout(graph);
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  const nodes = new Map(boxes.map((box) => [box.id, corner(graph.node(box.id) as Point, box)]));
  const edges = links.map((link, index) => {
    const box = sizes.get(link.from);
    if (link.from === link.to && box) return selfLink(nodes.get(link.from) ?? { x: 0, y: 0 }, box);
    const edge = box && sizes.has(link.to) ? (graph.edge(link.from, link.to, String(index)) as { points?: Point[]; x?: number; y?: number } | undefined) : undefined;
    const points = edge?.points ?? [];
    const middle = edge?.x !== undefined && edge.y !== undefined ? { x: edge.x, y: edge.y } : (points[Math.floor(points.length / 2)] ?? { x: 0, y: 0 });
    return { path: curve(points), middle };
  });
  return { width: finite(width), height: finite(height), nodes, edges };
}

/** A link out of the top of a node and back into it. */
function selfLink(at: Point, box: GraphBox): { path: string; middle: Point } {
  const left = at.x + box.width * 0.36;
  const right = at.x + box.width * 0.64;
  return { path: `M${right} ${at.y}C${right + 14} ${at.y - LOOP_HEIGHT} ${left - 14} ${at.y - LOOP_HEIGHT} ${left} ${at.y}`, middle: { x: at.x + box.width / 2, y: at.y - LOOP_HEIGHT * 0.76 } };
}

function finite(value: number): number {
  return Number.isFinite(value) ? value : 0;
}

function corner(centre: Point, box: GraphBox): Point {
  return { x: centre.x - box.width / 2, y: centre.y - box.height / 2 };
}

/** A smooth path through the midpoints between the points, bent towards the points. */
export function curve(points: readonly Point[]): string {
  const [first, ...rest] = points;
  if (!first) return '';
  const at = (point: Point) => `${point.x.toFixed(1)} ${point.y.toFixed(1)}`;
  let path = `M${at(first)}`;
  rest.forEach((point, index) => {
    const next = rest[index + 1];
    if (!next) path += index === 0 ? `L${at(point)}` : `T${at(point)}`;
    else path += `Q${at(point)} ${at({ x: (point.x + next.x) / 2, y: (point.y + next.y) / 2 })}`;
  });
  return path.replace(/T([\d.-]+ [\d.-]+)$/, 'L$1');
}
