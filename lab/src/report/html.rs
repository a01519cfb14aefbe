//! The report as one HTML page: no network, no scripts, light and dark, readable on a telephone.

use std::fmt::Write;

use crate::claims::{Outcome, short};
use crate::experiments;
use crate::report::svg::escape;
use crate::report::{Judged, counts, date, points, sentence, svg, tour};
use crate::simulate::Study;
use crate::stats;
use crate::store::Store;

const STYLE: &str = "
:root { color-scheme: light dark; --back: #fcfcfa; --text: #1d1d1f; --soft: #5c5c62; --line: #d9d9d6; --card: #f1f1ee;
  --good: #17663a; --bad: #9b2226; --open: #7a5b00; --none: #55555c; }
@media (prefers-color-scheme: dark) { :root { --back: #17181a; --text: #e8e8e6; --soft: #a5a5ab; --line: #3a3b3f;
  --card: #212226; --good: #6fcf97; --bad: #ff8a80; --open: #e6c35c; --none: #b0b0b8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 60rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
nav a { margin-right: .8rem; white-space: nowrap; } a { color: inherit; }
.soft, figcaption, .test { color: var(--soft); font-size: .875rem; }
.counts { display: flex; flex-wrap: wrap; gap: .5rem; padding: 0; list-style: none; }
.counts li { background: var(--card); border-radius: .5rem; padding: .4rem .8rem; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; }
td, th { text-align: left; vertical-align: top; padding: .3rem .5rem; border-bottom: 1px solid var(--line); }
.scroll { overflow-x: auto; } .scroll td, .scroll th { overflow-wrap: normal; }
.claim { border-left: .25rem solid var(--line); background: var(--card); padding: .5rem .8rem; margin: .6rem 0; border-radius: .3rem; }
.claim p { margin: .2rem 0; } .verdict { font-weight: 600; }
.holds { border-color: var(--good); } .holds .verdict { color: var(--good); }
.does-not-hold { border-color: var(--bad); } .does-not-hold .verdict { color: var(--bad); }
.undecided { border-color: var(--open); } .undecided .verdict { color: var(--open); }
.cannot-be-tested .verdict { color: var(--none); }
details { margin: .8rem 0; } summary { cursor: pointer; }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 12px; }
.grid { stroke: var(--line); stroke-width: 1; } polyline { fill: none; stroke-width: 2; } .paper { stroke-dasharray: 5 4; } .more { stroke-dasharray: 2 3; }
polyline.paper { stroke-width: 1.3; opacity: .75; } .spread { stroke-width: 1.5; opacity: .6; } circle { stroke: none; }
@media (max-width: 40rem) { svg text { font-size: 20px; } polyline, .spread { stroke-width: 3; } circle { r: 5px; } }
.legend { columns: 16rem; list-style: none; padding: 0; margin: .3rem 0; font-size: .875rem; }
.legend li::before { content: ''; display: inline-block; width: 1.4rem; border-top: 3px solid; margin-right: .5rem; vertical-align: middle; }
.legend li.paper::before { border-top-style: dashed; } .legend li.more::before { border-top-style: dotted; }
";

fn paragraphs(readme: &str) -> String {
    let mut html = String::new();
    for block in readme.split("\n\n").map(str::trim).filter(|b| !b.is_empty() && !b.starts_with("# ")) {
        if let Some(title) = block.strip_prefix("## ") {
            let _ = writeln!(html, "<h3>{}</h3>", escape(title));
        } else if block.starts_with("- ") {
            html.push_str("<ul>");
            for item in block.split("\n- ") {
                let _ = write!(html, "<li>{}</li>", escape(item.trim_start_matches("- ")));
            }
            html.push_str("</ul>\n");
        } else {
            let _ = writeln!(html, "<p>{}</p>", escape(block));
        }
    }
    html.replace('`', "")
}

fn claim(html: &mut String, j: &Judged) {
    let v = &j.verdict;
    let test = v.confidence.map_or_else(|| v.test.to_owned(), |c| format!("{}; confidence {} %", v.test, c * 100.0));
    let _ = writeln!(
        html,
        "<div class=\"claim {}\" id=\"{}\"><p><b>{}</b> {}</p><p class=\"verdict\">{}</p><p>{}</p><p class=\"test\">Test: {}</p></div>",
        v.outcome.name(),
        j.claim.id,
        j.claim.id,
        escape(j.claim.says),
        v.outcome.words(),
        escape(&sentence(&v.evidence)),
        escape(&test)
    );
}

/// The whole page.
pub fn page(store: &Store, judged: &[Judged], studies: &[Study]) -> String {
    let mut colours = String::new();
    for (i, colour) in svg::COLOURS.iter().enumerate() {
        let _ = writeln!(
            colours,
            "polyline.c{i}, line.c{i} {{ stroke: {colour}; }} circle.c{i} {{ fill: {colour}; }} .legend .c{i}::before {{ border-color: {colour}; }}"
        );
    }
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Threads, processes and user threads on this machine</title><style>{STYLE}{colours}</style></head><body>\n\
         <h1>Threads, processes and user threads on this machine</h1>\n<p class=\"soft\">A {} run of {}.</p>\n",
        store.size.name(),
        date(store.began)
    );
    html.push_str("<nav><a href=\"#tour\">Tour</a><a href=\"#machine\">Machine</a><a href=\"#claims\">Claims</a>");
    for e in experiments::ALL {
        let _ = write!(html, "<a href=\"#{}\">{}</a>", e.id, e.id);
    }
    html.push_str(
        "<a href=\"#simulation\">Simulation</a></nav>\n<section id=\"tour\"><h2>What matters for choosing</h2>\n",
    );
    let findings = tour::findings(store);
    if findings.is_empty() {
        html.push_str("<p>The experiments that would tell have not been run.</p>\n");
    } else {
        html.push_str("<ol>");
        for finding in &findings {
            let _ = writeln!(html, "<li>{}</li>", escape(finding));
        }
        html.push_str("</ol>\n");
    }
    html.push_str("</section>\n<section id=\"machine\"><h2>The machine</h2>\n<table>");
    for (name, value) in store.machine.lines() {
        let _ = writeln!(html, "<tr><th>{name}</th><td>{}</td></tr>", escape(&value));
    }
    html.push_str("</table></section>\n<section id=\"claims\"><h2>Claims</h2>\n<ul class=\"counts\">");
    for (outcome, n) in counts(judged) {
        let _ = write!(html, "<li><b>{n}</b> {}</li>", outcome.words());
    }
    html.push_str("</ul>\n<p class=\"soft\">Two figures are compared round by round. A claim is decided if the interval of their ratio lies clear of the threshold, five of six rounds lie on that side, and the signed-rank test agrees. \"More\" and \"less\" mean by 5 % at least. Anything else is undecided.</p>\n");
    for outcome in [Outcome::Holds, Outcome::Fails, Outcome::Undecided, Outcome::Untestable] {
        let of: Vec<&Judged> = judged.iter().filter(|j| j.verdict.outcome == outcome).collect();
        if of.is_empty() {
            continue;
        }
        let open = if matches!(outcome, Outcome::Holds | Outcome::Fails) { " open" } else { "" };
        let _ = writeln!(html, "<details{open}><summary><b>{}</b> {}</summary>", of.len(), outcome.words());
        for j in of {
            claim(&mut html, j);
        }
        html.push_str("</details>\n");
    }
    html.push_str("</section>\n");
    let points = points(store);
    for e in experiments::ALL {
        let _ = writeln!(html, "<section id=\"{}\"><h2>{}: {}</h2>", e.id, e.id, escape(e.title));
        for plot in e.plots {
            html.push_str(&svg::plot(plot, e.id, store).unwrap_or_default());
        }
        let links: Vec<String> = e.claims.iter().map(|c| format!("<a href=\"#{}\">{}</a>", c.id, c.id)).collect();
        let _ = writeln!(html, "<p class=\"soft\">Claims: {}</p>", links.join(" "));
        let _ = writeln!(
            html,
            "<details><summary>What the paper did, and what differs here</summary>{}</details>",
            paragraphs(e.readme)
        );
        let absent: Vec<&str> = store.absent.iter().filter(|(id, _)| id == e.id).map(|(_, why)| why.as_str()).collect();
        if !absent.is_empty() {
            html.push_str("<p class=\"soft\">Left out here:</p><ul class=\"soft\">");
            for why in absent {
                let _ = write!(html, "<li>{}</li>", escape(why));
            }
            html.push_str("</ul>\n");
        }
        if !e.published.is_empty() {
            html.push_str("<div class=\"scroll\"><table><tr><th>published</th><th></th></tr>");
            for (what, figure) in e.published {
                let _ = write!(html, "<tr><td>{}</td><td>{}</td></tr>", escape(what), escape(figure));
            }
            html.push_str("</table></div>\n");
        }
        let here: Vec<_> = points.iter().filter(|p| p.0 == e.id).collect();
        if here.is_empty() {
            html.push_str("<p>Not run.</p></section>\n");
            continue;
        }
        html.push_str("<details><summary>All figures, with the spread of the repetitions</summary><div class=\"scroll\"><table><tr><th>curve</th><th>at</th><th>figure</th><th>median</th><th>least to most</th><th>n</th></tr>");
        for (_, series, x, metric, values) in here {
            let _ = writeln!(
                html,
                "<tr><td>{}</td><td>{x}</td><td>{metric}</td><td>{}</td><td>{} to {}</td><td>{}</td></tr>",
                escape(series),
                short(stats::median(values)),
                short(stats::quantile(values, 0.0)),
                short(stats::quantile(values, 1.0)),
                values.len()
            );
        }
        html.push_str("</table></div></details></section>\n");
    }
    html.push_str("<section id=\"simulation\"><h2>Beyond the papers: fork-join on more CPUs, simulated</h2>\n");
    if studies.is_empty() {
        html.push_str("<p>The costs that a simulation needs (002-fib, 002-uts) have not been measured.</p>\n");
    } else {
        html.push_str("<p class=\"soft\">A simulation of the scheduler with costs measured here. Memory, caches and page faults are not in it: it is a bound from above. Where it can be checked, the measured time stands beside it.</p>\n");
    }
    for study in studies {
        let (head, rows) = study.table();
        let _ = write!(
            html,
            "<h3>{}</h3><p class=\"soft\">Costs: {}. The paper: {}.</p>{}<div class=\"scroll\"><table><tr>",
            escape(&study.title),
            escape(&study.costs()),
            escape(study.published),
            svg::prediction(study)
        );
        for cell in head {
            let _ = write!(html, "<th>{cell}</th>");
        }
        html.push_str("</tr>");
        for row in rows {
            let cells: Vec<String> = row.iter().map(|cell| format!("<td>{cell}</td>")).collect();
            let _ = write!(html, "<tr>{}</tr>", cells.concat());
        }
        html.push_str("</table></div>\n");
    }
    html.push_str("</section>\n</body></html>\n");
    html
}
