#!/bin/sh
# Waits for some minutes, and says that the tea is ready.
sleep "$((${1:-0} * 60))"
echo "The tea is ready."
