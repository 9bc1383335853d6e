//! RDMA cards: whether their links are up, and whether they are near the GPUs.

use super::{Needs, gpu::Bus, machine::Machine, report::Finding};

const CARDS: &str = "sys/class/infiniband";

/// An RDMA card, and its NUMA node where the kernel knows one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    name: String,
    node: Option<i64>,
    ports: Vec<Port>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Port {
    number: String,
    /// As sysfs has it without its number: `ACTIVE`, `DOWN`, `INIT`.
    state: String,
    rate: String,
}

impl Card {
    pub(super) fn is_up(&self) -> bool {
        self.ports.iter().any(|port| port.state == "ACTIVE")
    }

    fn shown(&self) -> String {
        let port = |Port { number, state, rate }: &Port| match state.as_str() {
            "ACTIVE" => format!("port {number} up, {rate}"),
            state => format!("port {number} {state}"),
        };
        let ports: Vec<String> = self.ports.iter().map(port).collect();
        format!("{} ({})", self.name, ports.join("; "))
    }
}

/// The cards that the kernel knows, those in software too.
pub(super) fn cards(machine: &Machine) -> Vec<Card> {
    machine.names(CARDS).into_iter().map(|name| card(machine, name)).collect()
}

fn card(machine: &Machine, name: String) -> Card {
    let ports = format!("{CARDS}/{name}/ports");
    let port = |number: String| {
        let text =
            |file: &str| machine.text(format!("{ports}/{number}/{file}")).unwrap_or_default();
        let state = text("state");
        let state = state.split_once(": ").map_or(state.as_str(), |(_, state)| state).to_owned();
        Port { state, rate: text("rate"), number }
    };
    Card {
        node: machine.number(format!("{CARDS}/{name}/device/numa_node")).filter(|node| *node >= 0),
        ports: machine.names(&ports).into_iter().map(port).collect(),
        name,
    }
}

/// Whether there are the cards that the settings need, with a link each.
pub(super) fn links(machine: &Machine, needs: &Needs<'_>, cards: &[Card]) -> Finding {
    const CHECK: &str = "rdma";
    let (rdma, asked) = (needs.rdma(), needs.cards());
    if cards.is_empty() && rdma {
        let advice =
            "load the card's driver, pass its devices to the container, or set protocol to tcp";
        return Finding::problem(
            CHECK,
            format!("protocol is rdma, and /{CARDS} has no card"),
            advice,
        );
    }
    if cards.is_empty() {
        return Finding::ok(CHECK, "not here: no RDMA card");
    }
    let all: Vec<String> = cards.iter().map(Card::shown).collect();
    let all = all.join(", ");
    if !rdma {
        return Finding::ok(CHECK, format!("{all}; not used: protocol is not rdma"));
    }
    if let Some(name) = asked.iter().find(|name| cards.iter().all(|card| card.name != **name)) {
        return Finding::problem(
            CHECK,
            format!("no card {name}, only {all}"),
            "name one of these in `device`",
        );
    }
    let used: Vec<&Card> = cards
        .iter()
        .filter(|card| asked.is_empty() || asked.contains(&card.name.as_str()))
        .collect();
    let up = used.iter().filter(|card| card.is_up()).count();
    if up == 0 {
        let advice =
            "look at cable, switch and subnet manager (`ibstat`), or name another card in `device`";
        return Finding::problem(CHECK, format!("no link is up: {all}"), advice);
    }
    if machine.names("dev/infiniband").iter().all(|name| !name.starts_with("uverbs")) {
        let advice = "pass /dev/infiniband to the container (`--device /dev/infiniband`)";
        return Finding::problem(CHECK, format!("{all}, but no /dev/infiniband/uverbs*"), advice);
    }
    if up < used.len() {
        let advice = "name only the cards whose link is up in `device`";
        return Finding::warning(CHECK, format!("a link is down: {all}"), advice);
    }
    Finding::ok(CHECK, all)
}

/// Whether each GPU has a card with a link on its own NUMA node.
pub(super) fn nodes(needs: &Needs<'_>, gpus: &[Bus], cards: &[Card]) -> Finding {
    const CHECK: &str = "numa";
    let asked = needs.cards();
    let used =
        |card: &&Card| card.is_up() && (asked.is_empty() || asked.contains(&card.name.as_str()));
    let used: Vec<&Card> = cards.iter().filter(used).collect();
    if gpus.is_empty() && cards.is_empty() {
        return Finding::ok(CHECK, "nothing to compare: no GPU, no RDMA card");
    }
    let on = |node: Option<i64>| {
        node.map_or("an unknown node".to_owned(), |node| format!("node {node}"))
    };
    let gpu = |gpu: &Bus| format!("GPU {} on {}", gpu.pci, on(gpu.node));
    let card = |card: &&Card| format!("{} on {}", card.name, on(card.node));
    let all: Vec<String> = gpus.iter().map(gpu).chain(used.iter().map(card)).collect();
    let all = all.join(", ");
    let all = if all.is_empty() { "no GPU, no RDMA card with a link".into() } else { all };
    let is_far = |gpu: &&Bus| {
        let known = |card: &&&Card| gpu.node.is_some() && card.node.is_some();
        let mut known = used.iter().filter(known).peekable();
        known.peek().is_some() && known.all(|card| card.node != gpu.node)
    };
    match gpus.iter().find(is_far) {
        Some(far) if needs.rdma() => Finding::warning(
            CHECK,
            all,
            format!(
                "every byte crosses the sockets: name a card of {} in `device`, or run the instance with a GPU of \
                 the card's node",
                on(far.node)
            ),
        ),
        _ => Finding::ok(CHECK, all),
    }
}
