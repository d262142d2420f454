#!/bin/sh
# Fails if the greeting is not the expected one.
said=$(sh greet.sh Ada)
if [ "$said" != "Hello, Ada!" ]; then
    echo "expected: Hello, Ada!"
    echo "but got:  $said"
    exit 1
fi
echo "ok"
