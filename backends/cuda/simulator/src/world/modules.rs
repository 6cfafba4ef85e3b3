//! Modules that are loaded, and their functions.

use super::World;
use crate::code::{Answer, Code};
use crate::kernels;
use crate::objects::handle::Object;
use crate::objects::module::{Function, Module, entries};

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
