//! Keys as requests have them.

/// A text without its percent signs.
pub(crate) fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next().unwrap()).to_digit(16).unwrap() as u8;
                digit() * 16 + digit()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}
