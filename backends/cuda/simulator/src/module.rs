//! Modules: the kernels that a text of PTX names.

use crate::code::{Answer, Code};
use crate::handle::Object;
use crate::kernels::{self, Kernel};
use crate::world::World;

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: u64,
    handle: usize,
    entries: Vec<(String, Vec<usize>)>,
    functions: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) context: u64,
    /// Nothing for a kernel that the simulator does not know.
    pub(crate) kernel: Option<&'static Kernel>,
    /// Sizes of the parameters, bytes.
    pub(crate) parameters: Vec<usize>,
}

impl World {
    pub(crate) fn load(&mut self, context: u64, text: &str) -> Answer<usize> {
        let entries = entries(text)?;
        let number = self.next_number();
        let handle = self.handles.add(Object::Module(number));
        self.modules.insert(number, Module { context, handle, entries, functions: Vec::new() });
        Ok(handle)
    }

    pub(crate) fn function(&mut self, module: u64, name: &str) -> Answer<usize> {
        let of = self.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        if name.is_empty() {
            return Err(Code::INVALID_VALUE);
        }
        let (_, parameters) = of.entries.iter().find(|(entry, _)| entry == name).ok_or(Code::NOT_FOUND)?;
        let (context, kernel, parameters) = (of.context, kernels::find(name), parameters.clone());
        let number = self.next_number();
        let handle = self.handles.add(Object::Function(number));
        self.functions.insert(number, Function { context, kernel, parameters });
        if let Some(of) = self.modules.get_mut(&module) {
            of.functions.push(handle);
        }
        Ok(handle)
    }

    pub(crate) fn unload(&mut self, module: u64) {
        let Some(module) = self.modules.remove(&module) else { return };
        self.handles.remove(module.handle);
        for function in module.functions {
            if let Some(Object::Function(number)) = self.handles.remove(function) {
                self.functions.remove(&number);
            }
        }
    }
}

/// The entries of a text, with the sizes of their parameters.
fn entries(text: &str) -> Answer<Vec<(String, Vec<usize>)>> {
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
