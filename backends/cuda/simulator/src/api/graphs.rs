//! Graphs.

use crate::boundary::{exports, put};
use crate::code::Code;
use crate::objects::handle::Object;
use crate::objects::work::{Graph, Program, Work};
use std::ffi::{c_uint, c_ulonglong};
use std::sync::Arc;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`
const FREE_ON_LAUNCH: c_ulonglong = 1;

exports! {
    fn cuGraphCreate(to: *mut usize, flags: c_uint) |call| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let handle = call.world().add_graph(Graph::default());
        put(to, handle)
    }

    fn cuGraphDestroy(handle: usize) |call| {
        call.world().destroy_graph(handle)
    }

    fn cuGraphGetNodes(handle: usize, nodes: *mut usize, count: *mut usize) |call| {
        let mut world = call.world();
        let graph = world.graph_of(handle)?;
        let there = world.graphs.get(&graph).map_or(0, |graph| graph.nodes.len());
        put(count, there)
    }

    fn cuGraphInstantiateWithFlags(to: *mut usize, graph: usize, flags: c_ulonglong) |call| {
        let mut world = call.world();
        let graph = world.graph_of(graph)?;
        let mut copy = world.graphs.get(&graph).cloned().ok_or(Code::INVALID_VALUE)?;
        copy.frees_on_launch = flags & FREE_ON_LAUNCH != 0;
        let number = world.next_number();
        world.execs.insert(number, Program { graph: Arc::new(copy), last: None });
        let handle = world.handles.add(Object::Exec(number));
        put(to, handle)
    }

    fn cuGraphUpload(exec: usize, stream: usize) |call| {
        let mut world = call.world();
        let (exec, stream) = (world.exec_of(exec)?, world.stream_of(stream)?);
        world.run_program(exec, stream, Work::Nothing)
    }

    fn cuGraphLaunch(exec: usize, stream: usize) |call| {
        let mut world = call.world();
        let (exec, stream) = (world.exec_of(exec)?, world.stream_of(stream)?);
        let graph = world.execs.get(&exec).map(|program| Arc::clone(&program.graph)).ok_or(Code::INVALID_VALUE)?;
        world.check_memory_of(&graph)?;
        world.run_program(exec, stream, Work::Graph(graph))
    }

    fn cuGraphExecDestroy(handle: usize) |call| {
        let mut world = call.world();
        let exec = world.exec_of(handle)?;
        world.handles.remove(handle);
        world.execs.remove(&exec);
        Ok(())
    }
}
