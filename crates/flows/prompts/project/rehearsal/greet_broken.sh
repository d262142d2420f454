#!/bin/sh
# Greets the person whose name is the first argument.
echo "Hello ${1:-world}"
