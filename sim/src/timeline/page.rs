//! One file that shows a timeline in a browser: template, style, script and data together.

use super::Timeline;

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPTS: [&str; 4] = [
    include_str!("page/model.js"),
    include_str!("page/canvas.js"),
    include_str!("page/list.js"),
    include_str!("page/main.js"),
];

/// The page of a timeline.
pub fn html(timeline: &Timeline) -> String {
    let data = serde_json::to_string(timeline).expect("a timeline is plain data");
    let title = format!("{} · springtide simulator", timeline.name);
    // The template's own words come first: what is put in may hold any.
    let parts = [
        ("<!-- title -->", escape_html(&title)),
        ("/* style */", STYLE.to_owned()),
        ("/* data */", escape_script(&data)),
        ("/* script */", SCRIPTS.concat()),
    ];
    let mut page = String::with_capacity(data.len() + (1 << 16));
    let mut rest = TEMPLATE;
    for (place, part) in parts {
        let (before, after) =
            rest.split_once(place).expect("the template has every place, in order");
        page.push_str(before);
        page.push_str(&part);
        rest = after;
    }
    page + rest
}

/// JSON that cannot end the element it stands in: `<`, which only strings have, in its other notation.
fn escape_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        campaign::run_fresh,
        plan::{Plan, Workload},
        recorder::Keep,
    };

    fn page(name: &str) -> String {
        let mut plan = Plan::base("test", Workload::W6);
        plan.phases.settle_ms = 3_000;
        let outcome = run_fresh(&plan, Keep::Everything);
        plan.name = name.to_owned();
        html(&Timeline::new(&plan, &outcome, None, "sim --plan '</script>'"))
    }

    /// The text of the element with the data.
    fn data(page: &str) -> &str {
        let (_, rest) = page.split_once("<script id=\"data\" type=\"application/json\">").unwrap();
        rest.split_once("</script>").unwrap().0
    }

    #[test]
    fn what_a_plan_says_cannot_leave_its_place() {
        let name = "a</script><script>alert(1)</script><!-- & \u{2028} /* script */";
        let page = page(name);
        assert_eq!(page.matches("<script").count(), 2, "data and program");
        assert_eq!(page.matches("</script").count(), 2);
        let data: serde_json::Value = serde_json::from_str(data(&page)).unwrap();
        assert_eq!(data["name"], name);
        assert_eq!(data["replay"], "sim --plan '</script>'");
        assert!(page.contains("<title>a&lt;/script&gt;&lt;script&gt;"), "the title is escaped");
    }

    #[test]
    fn a_page_needs_nothing_from_elsewhere() {
        let page = page("plain");
        for word in ["http:", "https:", "src=", "href=", "@import", "url(", "fetch("] {
            assert!(!page.contains(word), "{word}");
        }
        for place in ["<!-- title -->", "/* style */", "/* data */", "/* script */"] {
            assert!(!page.contains(place), "{place} is left");
        }
    }
}
