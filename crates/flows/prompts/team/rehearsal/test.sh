#!/bin/sh
# Runs every test.
set -e
for test in tests/*.sh; do
    sh -e "$test"
    echo "passed: $test"
done
