#!/bin/bash
set -e
git init -q -b main repo
git -C repo fast-import --quiet < history.fast-export
cd repo
git reset -q --hard
git config user.name "Release Robot"
git config user.email robot@example.com
git bisect start main "$(git rev-parse ':/Add a command line')"
git bisect run sh -c 'test "$(python3 slug.py "Fish,  chips & peas")" = fish-chips-peas'
culprit=$(git rev-parse refs/bisect/bad)
git bisect reset
git revert --no-edit "$culprit"
