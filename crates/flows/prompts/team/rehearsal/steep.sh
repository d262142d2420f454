#!/bin/sh
# Prints for how many minutes a tea steeps.
case "$1" in
green) echo 2 ;;
black) echo 4 ;;
*)
    echo "usage: steep.sh green|black" >&2
    exit 2
    ;;
esac
