//! Keys. Identifiers come from clients and namespaces from configurations; both may be anything.

use springtide::connector::{FORMAT, IDENTIFIER_MAX, Namespace, NamespaceParts};

/// Two identifiers and two namespaces, each ended by a byte that no UTF-8 has.
pub fn run(bytes: &[u8]) {
    let mut pieces = bytes.split(|byte| *byte == 0xFF).map(String::from_utf8_lossy);
    let mut text = || pieces.next().unwrap_or_default().into_owned();
    let identifiers = [text(), text()];
    let parts = [(); 2].map(|()| NamespaceParts {
        model: text(),
        revision: text(),
        adapter: text(),
        width: text().parse().unwrap_or(2048),
        ..NamespaceParts::default()
    });
    let namespaces = [Namespace::new(&parts[0]), Namespace::new(&parts[1])];
    assert_eq!(parts[0] == parts[1], namespaces[0].fingerprint() == namespaces[1].fingerprint());
    for namespace in &namespaces {
        let keys = identifiers.each_ref().map(|identifier| namespace.key(identifier));
        assert_eq!(identifiers[0] == identifiers[1], keys[0] == keys[1]);
        for key in keys {
            let name = key.as_str().strip_prefix(namespace.fingerprint()).expect("its namespace");
            let name = name.strip_prefix('/').expect("a slash");
            assert!(key.as_str().starts_with(FORMAT) && key.as_str().is_ascii());
            assert!(!name.is_empty() && name.len() <= IDENTIFIER_MAX && !name.contains('/'));
        }
        let rows = identifiers[0].parse().unwrap_or(identifiers[0].len() as u64);
        if let Ok(spec) = namespace.spec(rows) {
            assert_eq!(spec.shape.dims()[0], rows);
        }
    }
    assert_eq!(
        namespaces[0].key(&identifiers[0]) == namespaces[1].key(&identifiers[0]),
        parts[0] == parts[1]
    );
}
