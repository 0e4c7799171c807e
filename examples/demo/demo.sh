#!/bin/sh
# `make demo` runs this: it sharpens a skill with a small model on this machine. It needs whet on the PATH and takes
# about four minutes.
set -eu
cd "$(dirname "$0")/../.."
out=${1:-runs/demo}
here=examples/demo

say() { printf '\n%s\n' "$*"; }
run() { printf '\n$ %s\n' "$*" && "$@"; }

say "The computer of a ship answers the crew. Its skill says little:"
sed '1,/^# /d; /^$/d' "$here/ship-answers/SKILL.md"
say "Judges want more: every answer begins with \"Aye!\", has \"Captain\" in it, ends with OVER, and is right.
Each check that fails becomes a rule with examples. After that two traps are proposed, one useless and one harmful:"
cat "$here/traps.txt"

rm -rf "$out"
run whet sharpen "$here/ship-answers" "$here/questions.jsonl" --agent ship --model ship \
  --proposer "criteria+rules:$here/traps.txt" --budget 680 --out "$out"
say "The certified skill:"
cat "$out/best/ship-answers/SKILL.md"
say "How often each check passes, on held-out test tasks:"
sed -n '/^| check |/,/^$/p' "$out/report.md" | sed 's/\\\(.\)/\1/g' # without the backslashes of Markdown
say "The search may have missed what the traps do. So each trap is also tested in an exam against the first skill:"
for trap in useless harmful; do
  run whet certify "$here/ship-answers" "$here/$trap" --tasks "$here/questions.jsonl" --agent ship --model ship \
    --budget 75 --out "$out/$trap" || [ $? = 1 ]  # 1: not certified, as a trap should be
done

say "The whole report, with plots: $out/report.html"
if [ -t 1 ] && [ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ] && command -v xdg-open >/dev/null; then
  xdg-open "$out/report.html" >/dev/null 2>&1 || true
fi
say "Now try it with your own skill, tasks and agent (docs/sharpen.md says which tasks work well):

  whet sharpen path/to/skill path/to/tasks --agent opencode --model yours --dry-run
  whet sharpen path/to/skill path/to/tasks --agent opencode --model yours --budget 400"
say "Look at what was tried, every trace and the certificate in a browser:

  whet view $out"
