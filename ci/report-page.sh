#!/usr/bin/env bash
# The lab's report in a browser: it opens from disk, and nothing is wider than a telephone (375 px) when all is unfolded.
#
#   ci/report-page.sh [--shots FOLDER] [REPORT.html]
#
# Without a report a tiny run makes one (target/release/heddle, or HEDDLE_BIN). --shots: pictures of it, light and dark, wide and
# narrow. Needs Chromium (Debian: apt install chromium).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

shots="" report=""
while (($# > 0)); do
    case $1 in
        --shots) shots=${2:?--shots: which folder?} && shift 2 ;;
        -*) echo "report-page: unknown option $1" >&2 && exit 2 ;;
        *) report=$1 && shift ;;
    esac
done

browser=""
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then browser=$name && break; fi
done
if [[ -z $browser ]]; then
    echo "report-page: no Chromium here: apt install chromium" >&2
    exit 2
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [[ -z $report ]]; then
    heddle=${HEDDLE_BIN:-${CARGO_TARGET_DIR:-target}/release/heddle}
    "$heddle" lab run --tiny --out "$scratch/run" >"$scratch/log" 2>&1 || { cat "$scratch/log" && exit 1; }
    report=$scratch/run/report.html
fi
cp "$report" "$scratch/report.html"

browse() { timeout 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars "$@" 2>/dev/null; }

# A frame of a telephone's width, all unfolded; what reaches beyond it, unless it is in a part that scrolls by itself.
cat >"$scratch/phone.html" <<'HTML'
<!DOCTYPE html><body style="margin:0"><iframe id="phone" src="report.html" style="width:375px;height:3000px;border:0"></iframe>
<script>
onload = () => {
  const page = document.getElementById('phone').contentDocument;
  page.querySelectorAll('details').forEach(part => { part.open = true; });
  const wide = [...page.querySelectorAll('body *')].filter(part =>
    !part.closest('.scroll') && !part.closest('svg') && part.getBoundingClientRect().right > 375.5);
  const names = wide.slice(0, 5).map(part => part.tagName + ' ' + part.className + ' ' + part.textContent.slice(0, 40));
  const parts = page.querySelectorAll('.claim').length;
  document.title = `claims ${parts} width ${page.documentElement.scrollWidth} wide ${wide.length}: ${names.join('; ')}`;
};
</script></body>
HTML
title=$(browse --allow-file-access-from-files --dump-dom "file://$scratch/phone.html" | grep -o '<title>[^<]*' | head -n 1)
echo "report-page: ${title#<title>}"
if [[ ! $title =~ claims\ 71\ width\ ([0-9]+)\ wide\ 0: ]] || ((BASH_REMATCH[1] > 375)); then
    echo "report-page: the page does not open whole, or is too wide for 375 px" >&2
    exit 1
fi

if [[ -n $shots ]]; then
    mkdir -p "$shots"
    for look in light:1 dark:0; do
        picture=$(realpath "$shots")/${look%:*}
        browse --blink-settings=preferredColorScheme="${look#*:}" --window-size=1100,6000 \
            --screenshot="$picture-wide.png" "file://$scratch/report.html"
        browse --blink-settings=preferredColorScheme="${look#*:}" --window-size=375,3000 \
            --screenshot="$picture-narrow.png" "file://$scratch/phone.html"
    done
    echo "report-page: pictures in $shots"
fi
