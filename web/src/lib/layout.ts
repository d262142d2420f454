// Places the nodes of a graph and draws its edges as soft curves. What a node or an edge means is not known here.

import dagre from '@dagrejs/dagre';

export interface Box {
  id: string;
  width: number;
  height: number;
}

export interface Link {
  from: string;
  to: string;
  /** Room for words on it. */
  label?: { width: number; height: number };
}

export interface Placed {
  width: number;
  height: number;
  nodes: Map<string, { x: number; y: number }>;
  /** In the order the links were given. */
  edges: { path: string; middle: { x: number; y: number } }[];
}

export interface Manner {
  direction: 'right' | 'down';
  rankGap?: number;
  nodeGap?: number;
}

interface Point {
  x: number;
  y: number;
}

const MARGIN = 24;
/** How far a link from a node to itself stands out. */
const LOOP = 34;

export function layout(boxes: readonly Box[], links: readonly Link[], manner: Manner): Placed {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  const loops = links.some((link) => link.from === link.to);
  graph.setGraph({
    rankdir: manner.direction === 'right' ? 'LR' : 'TB',
    ranksep: manner.rankGap ?? 64,
    nodesep: manner.nodeGap ?? 36,
    edgesep: 18,
    marginx: MARGIN,
    marginy: loops ? MARGIN + LOOP + 20 : MARGIN,
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
    if (link.from === link.to && box) return loop(nodes.get(link.from) ?? { x: 0, y: 0 }, box);
    const edge = box && sizes.has(link.to) ? (graph.edge(link.from, link.to, String(index)) as { points?: Point[]; x?: number; y?: number } | undefined) : undefined;
    const points = edge?.points ?? [];
    const middle = edge?.x !== undefined && edge.y !== undefined ? { x: edge.x, y: edge.y } : (points[Math.floor(points.length / 2)] ?? { x: 0, y: 0 });
    return { path: curve(points), middle };
  });
  return { width: finite(width), height: finite(height), nodes, edges };
}

/** Out of the top of a node and back into it. */
function loop(at: Point, box: Box): { path: string; middle: Point } {
  const left = at.x + box.width * 0.36;
  const right = at.x + box.width * 0.64;
  return { path: `M${right} ${at.y}C${right + 14} ${at.y - LOOP} ${left - 14} ${at.y - LOOP} ${left} ${at.y}`, middle: { x: at.x + box.width / 2, y: at.y - LOOP * 0.76 } };
}

function finite(value: number): number {
  return Number.isFinite(value) ? value : 0;
}

function corner(centre: Point, box: Box): Point {
  return { x: centre.x - box.width / 2, y: centre.y - box.height / 2 };
}

/** Through the middles of the stretches between points, bent towards the points themselves. */
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
