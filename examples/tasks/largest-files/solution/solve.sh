#!/bin/bash
cat > largest.sh <<'SH'
#!/bin/sh
# Lists the N largest files below DIR: size, tab, path.

usage() {
    echo "usage: largest.sh DIR N (an existing folder, and a whole number from 1)" >&2
    exit 2
}

[ $# -eq 2 ] || usage
case $2 in '' | *[!0-9]*) usage ;; esac
[ "$2" -ge 1 ] || usage
cd -- "$1" 2>/dev/null || usage

find . -type f -printf '%s\t%P\n' | LC_ALL=C sort -t "$(printf '\t')" -k 1,1nr -k 2 | head -n "$2"
SH
