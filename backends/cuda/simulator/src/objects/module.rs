//! Modules: the kernels that a text of PTX names.

use crate::code::{Answer, Code};
use crate::kernels::Kernel;

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: u64,
    pub(crate) handle: usize,
    pub(crate) entries: Vec<(String, Vec<usize>)>,
    pub(crate) functions: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) context: u64,
    /// Nothing for a kernel that the simulator does not know.
    pub(crate) kernel: Option<&'static Kernel>,
    /// Sizes of the parameters, bytes.
    pub(crate) parameters: Vec<usize>,
}

/// The entries of a text, with the sizes of their parameters.
pub(crate) fn entries(text: &str) -> Answer<Vec<(String, Vec<usize>)>> {
    if !text.contains(".version") || !text.contains(".target") {
        return Err(if text.trim_start().starts_with(['.', '/']) {
            Code::INVALID_PTX
        } else {
            Code::INVALID_IMAGE
        });
    }
    let mut entries = Vec::new();
    for part in text.split(".entry").skip(1) {
        let (name, rest) = part.split_once('(').ok_or(Code::INVALID_PTX)?;
        let (parameters, body) = rest.split_once(')').ok_or(Code::INVALID_PTX)?;
        // No compiler: a body is right if it returns.
        if !body.contains("ret;") {
            return Err(Code::INVALID_PTX);
        }
        let sizes =
            parameters.split(',').map(str::trim).filter(|parameter| !parameter.is_empty()).map(|parameter| {
                let kind = parameter.split_whitespace().nth(1).unwrap_or_default();
                let bits = kind.trim_start_matches(|c: char| !c.is_ascii_digit());
                bits.parse::<usize>().map(|bits| bits / 8).map_err(|_| Code::INVALID_PTX)
            });
        entries.push((name.trim().to_owned(), sizes.collect::<Answer<_>>()?));
    }
    Ok(entries)
}
