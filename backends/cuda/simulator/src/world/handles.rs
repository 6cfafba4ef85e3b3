//! The objects that handles name, by kind.

use super::World;
use crate::code::{Answer, Code};
use crate::objects::handle::Object;

macro_rules! kinds {
    ($($name:ident: $variant:ident, $error:ident;)*) => {
        impl World {
            $(
                /// The object of this kind that a handle names.
                pub(crate) fn $name(&mut self, handle: usize) -> Answer<u64> {
                    match self.handles.get(handle) {
                        Ok(Object::$variant(number)) => Ok(number),
                        Ok(_) | Err(None) => Err(Code::$error),
                        Err(Some(object)) => {
                            self.report(format!("{object:?} was destroyed, and its handle is used"));
                            Err(Code::$error)
                        }
                    }
                }
            )*
        }
    };
}

kinds! {
    context_of: Context, INVALID_CONTEXT;
    created_stream_of: Stream, INVALID_HANDLE;
    event_of: Event, INVALID_HANDLE;
    pool_of: Pool, INVALID_VALUE;
    module_of: Module, INVALID_HANDLE;
    function_of: Function, INVALID_HANDLE;
    graph_of: Graph, INVALID_VALUE;
    exec_of: Exec, INVALID_VALUE;
    physical_of: Physical, INVALID_VALUE;
}
