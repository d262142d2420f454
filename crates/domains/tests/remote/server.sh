#!/bin/sh
# A minimal MCP server for notes. The first argument is the protocol version that it supports: `initialize` (without
# `server/discover`) or `discover` (without `initialize`). Every request is logged in the file of the second argument.
style=$1
log=$2
notes='[{\"uid\":\"5f0e8a12-0001-4000-8000-000000000001\",\"title\":\"Buy oak\",\"done\":false},{\"uid\":\"5f0e8a12-0002-4000-8000-000000000002\",\"title\":\"Call Noor\",\"done\":true}]'

answer() {
  if [ "$style" = discover ]; then
    printf '{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",%s}}\n' "$id" "$1"
  else
    printf '{"jsonrpc":"2.0","id":%s,"result":{%s}}\n' "$id" "$1"
  fi
}
unknown() { printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}\n' "$id"; }

schema='{"type":"object","properties":{"note":{"type":"string"}}}'
while IFS= read -r line; do
  printf '%s\n' "$line" >>"$log"
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
  *'"method":"initialize"'*)
    if [ "$style" = initialize ]; then
      answer '"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"notes","version":"1"}'
    else
      unknown
    fi
    ;;
  *'"method":"server/discover"'*)
    if [ "$style" = discover ]; then
      answer '"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"'
    else
      unknown
    fi
    ;;
  *'"method":"notifications/'*) ;;
  *'"method":"tools/list"'*)
    tools="{\"name\":\"list_notes\",\"description\":\"lists notes\",\"inputSchema\":$schema},{\"name\":\"finish_note\",\"description\":\"finishes a note\",\"inputSchema\":$schema},{\"name\":\"drop_all\",\"inputSchema\":$schema}"
    answer "\"tools\":[$tools],\"ttlMs\":0,\"cacheScope\":\"private\""
    ;;
  *'"name":"list_notes"'*) answer "\"content\":[{\"type\":\"text\",\"text\":\"{\\\"notes\\\":$(printf '%s' "$notes" | sed 's/\\"/\\"/g')}\"}]" ;;
  *'"name":"finish_note"'*'0002'*) answer '"content":[{"type":"text","text":"that one is done already"}],"isError":true' ;;
  *'"name":"finish_note"'*) answer '"content":[{"type":"text","text":"finished 5f0e8a12-0001-4000-8000-000000000001 and not 5f0e8a12-0009-4000-8000-000000000009"}]' ;;
  *'"name":"die"'*) exit 1 ;;
  *) [ -n "$id" ] && unknown ;;
  esac
done
