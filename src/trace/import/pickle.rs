//! Pickles of plain data, protocols 0 to 5, read without running anything.
//!
//! Read are the instructions for None, truth values, numbers, text, bytes, tuples, lists, dictionaries and the memo. What names,
//! makes or calls anything else is refused by its name, so there is nothing that a pickle could run.
//!
//! Kept is what the reader of a snapshot looks at: whole numbers of 64 bits, and of text which of the [`WORDS`] it is. Values are
//! numbers of nodes, not pointers to them: whatever a pickle nests or ties in circles, neither reading nor dropping it recurs.

use super::input::Input;
use super::words::Word;
use crate::trace::error::Fault;
use std::collections::HashMap;
use std::io::BufRead;

/// What is kept of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Whole(i64),
    Word(Word),
    /// A list or a tuple.
    List(u32),
    Dictionary(u32),
    /// Anything else.
    Other,
}

/// What a pickle says.
#[derive(Debug)]
pub(super) struct Pickled {
    pub(super) root: Value,
    nodes: Vec<Node>,
}

#[derive(Debug)]
enum Node {
    List(Vec<Value>),
    /// In the order in which keys were set, those that are [words](Word) only.
    Dictionary(Vec<(Word, Value)>),
    /// It was the value of a key that nobody asks for.
    Forgotten,
}

/// Bytes that things take, for the bound on all of them together.
const OF_VALUE: u64 = 16;
const OF_ENTRY: u64 = 24;
const OF_NODE: u64 = 40;
const OF_MEMO: u64 = 32;

impl Pickled {
    /// Reads one pickle, within so many bytes of memory. `offset` is where the instruction being read begins.
    pub(super) fn read(input: impl BufRead, max_bytes: u64, offset: &mut u64) -> Result<Self, Fault> {
        let mut machine = Machine {
            input: Input::new(input),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            nodes: Vec::new(),
            taken: 0,
        };
        loop {
            *offset = machine.input.at();
            if machine.run()? {
                break;
            }
            let depth = (machine.stack.len() + machine.marks.len()) as u64;
            if machine.taken + OF_VALUE * depth > max_bytes {
                return Err(Fault::TooMuchData { max: max_bytes });
            }
        }
        Ok(Self { root: machine.pop()?, nodes: machine.nodes })
    }

    /// The items of a list.
    pub(super) fn list(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::List(node) => match self.nodes.get(node as usize) {
                Some(Node::List(items)) => Some(items),
                _ => None,
            },
            _ => None,
        }
    }

    /// What a dictionary has under `key`; the last of several. `Err` when it is no dictionary.
    pub(super) fn get(&self, value: Value, key: Word) -> Result<Option<Value>, ()> {
        let Value::Dictionary(node) = value else { return Err(()) };
        let Some(Node::Dictionary(entries)) = self.nodes.get(node as usize) else { return Err(()) };
        Ok(entries.iter().rev().find(|(found, _)| *found == key).map(|(_, value)| *value))
    }
}

struct Machine<R> {
    input: Input<R>,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: HashMap<u64, Value>,
    nodes: Vec<Node>,
    taken: u64,
}

impl<R: BufRead> Machine<R> {
    /// Runs one instruction. Answers whether it was the last.
    fn run(&mut self) -> Result<bool, Fault> {
        let opcode = self.input.byte()?;
        match opcode {
            b'.' => return Ok(true),
            // The protocol: instructions tell by themselves.
            0x80 => match self.input.byte()? {
                0..=5 => {}
                protocol => return Err(Fault::Protocol { protocol }),
            },
            // A frame's length: a hint.
            0x95 => self.input.skip(8)?,
            b'(' => self.marks.push(self.stack.len()),
            b'0' => self.pop_or_mark()?,
            b'1' => drop(self.pop_to_mark()?),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            b'N' | 0x88 | 0x89 => self.stack.push(Value::Other),
            b'I' | b'L' => {
                let value = self.input.digits()?;
                self.stack.push(value);
            }
            b'J' => self.whole::<4>(|bytes| i32::from_le_bytes(bytes).into())?,
            b'K' => self.whole::<1>(|[byte]| byte.into())?,
            b'M' => self.whole::<2>(|bytes| u16::from_le_bytes(bytes).into())?,
            0x8a => {
                let len = self.input.length::<1>()?;
                self.long(len)?;
            }
            0x8b => {
                let len = self.input.length::<4>()?;
                self.long(len)?;
            }
            b'F' | b'S' | b'V' => {
                let value = self.input.line()?;
                self.stack.push(value);
            }
            b'G' => {
                self.input.skip(8)?;
                self.stack.push(Value::Other);
            }
            b'U' | b'C' | 0x8c => self.text::<1>()?,
            b'T' | b'B' | b'X' => self.text::<4>()?,
            0x8d | 0x8e | 0x96 => self.text::<8>()?,
            b']' | b')' => self.list(Vec::new())?,
            b'l' | b't' => {
                let items = self.pop_to_mark()?;
                self.list(items)?;
            }
            0x85..=0x87 => {
                let from = self.below(usize::from(opcode - 0x84))?;
                let items = self.stack.split_off(from);
                self.list(items)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.pop_to_mark()?;
                self.append(items)?;
            }
            b'}' => self.dictionary()?,
            b'd' => {
                let items = self.pop_to_mark()?;
                self.dictionary()?;
                self.set(&items)?;
            }
            b's' => {
                let from = self.below(2)?;
                let items = self.stack.split_off(from);
                self.set(&items)?;
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.set(&items)?;
            }
            b'g' => {
                let place = self.input.place()?;
                self.recall(place)?;
            }
            b'h' => {
                let place = self.input.length::<1>()?;
                self.recall(place)?;
            }
            b'j' => {
                let place = self.input.length::<4>()?;
                self.recall(place)?;
            }
            b'p' => {
                let place = self.input.place()?;
                self.remember(place)?;
            }
            b'q' => {
                let place = self.input.length::<1>()?;
                self.remember(place)?;
            }
            b'r' => {
                let place = self.input.length::<4>()?;
                self.remember(place)?;
            }
            0x94 => self.remember(self.memo.len() as u64)?,
            _ => return Err(Fault::Opcode { opcode, name: name(opcode) }),
        }
        Ok(false)
    }

    fn top(&self) -> Result<Value, Fault> {
        self.below(1).and_then(|place| self.stack.get(place).copied().ok_or(Fault::NotPickled))
    }

    fn pop(&mut self) -> Result<Value, Fault> {
        self.below(1)?;
        self.stack.pop().ok_or(Fault::NotPickled)
    }

    /// Where the last `count` values begin, which no mark is among.
    fn below(&self, count: usize) -> Result<usize, Fault> {
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack.len().checked_sub(count).filter(|&from| from >= floor).ok_or(Fault::NotPickled)
    }

    fn pop_or_mark(&mut self) -> Result<(), Fault> {
        match self.marks.last() {
            Some(&mark) if mark == self.stack.len() => drop(self.marks.pop()),
            _ => drop(self.pop()?),
        }
        Ok(())
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value>, Fault> {
        // It is never more than there is: values below a mark cannot be taken.
        let mark = self.marks.pop().ok_or(Fault::NotPickled)?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn whole<const N: usize>(&mut self, of: impl Fn([u8; N]) -> i64) -> Result<(), Fault> {
        let bytes = self.input.bytes()?;
        self.stack.push(Value::Whole(of(bytes)));
        Ok(())
    }

    /// A number of so many bytes, the lowest first, in two's complement.
    fn long(&mut self, len: u64) -> Result<(), Fault> {
        let mut bytes = [0; 8];
        let value = match bytes.get_mut(..usize::try_from(len).unwrap_or(usize::MAX)) {
            Some(low) => {
                self.input.fill(low)?;
                let sign = low.last().is_some_and(|byte| byte & 0x80 != 0);
                let len = low.len();
                bytes[len..].fill(if sign { 0xff } else { 0 });
                Value::Whole(i64::from_le_bytes(bytes))
            }
            None => {
                self.input.skip(len)?;
                Value::Other
            }
        };
        self.stack.push(value);
        Ok(())
    }

    /// Text or bytes behind a length of `N` bytes.
    fn text<const N: usize>(&mut self) -> Result<(), Fault> {
        let len = self.input.length::<N>()?;
        let mut text = [0; Word::LONGEST];
        let value = match text.get_mut(..usize::try_from(len).unwrap_or(usize::MAX)) {
            Some(text) => {
                self.input.fill(text)?;
                Word::of(text).map_or(Value::Other, Value::Word)
            }
            None => {
                self.input.skip(len)?;
                Value::Other
            }
        };
        self.stack.push(value);
        Ok(())
    }

    fn node(&mut self, node: Node) -> Result<u32, Fault> {
        let number =
            u32::try_from(self.nodes.len()).map_err(|_| Fault::TooMuchData { max: u32::MAX.into() })?;
        self.taken += OF_NODE;
        self.nodes.push(node);
        Ok(number)
    }

    fn list(&mut self, items: Vec<Value>) -> Result<(), Fault> {
        self.taken += OF_VALUE * items.len() as u64;
        let node = self.node(Node::List(items))?;
        self.stack.push(Value::List(node));
        Ok(())
    }

    fn dictionary(&mut self) -> Result<(), Fault> {
        let node = self.node(Node::Dictionary(Vec::new()))?;
        self.stack.push(Value::Dictionary(node));
        Ok(())
    }

    fn append(&mut self, more: Vec<Value>) -> Result<(), Fault> {
        let Value::List(node) = self.top()? else { return Err(Fault::NotPickled) };
        self.taken += OF_VALUE * more.len() as u64;
        match self.nodes.get_mut(node as usize) {
            Some(Node::List(items)) => items.extend(more),
            _ => return Err(Fault::NotPickled),
        }
        Ok(())
    }

    /// Sets keys, which come each before its value.
    fn set(&mut self, items: &[Value]) -> Result<(), Fault> {
        let Value::Dictionary(node) = self.top()? else { return Err(Fault::NotPickled) };
        if !items.len().is_multiple_of(2) {
            return Err(Fault::NotPickled);
        }
        for pair in items.chunks_exact(2) {
            match *pair {
                [Value::Word(key), value] => match self.nodes.get_mut(node as usize) {
                    Some(Node::Dictionary(entries)) => {
                        entries.push((key, value));
                        self.taken += OF_ENTRY;
                    }
                    _ => return Err(Fault::NotPickled),
                },
                [_, value] => self.forget(value),
                _ => return Err(Fault::NotPickled),
            }
        }
        Ok(())
    }

    /// Nobody asks for it: its memory is for others. (The frames of an event are most of a snapshot.)
    fn forget(&mut self, value: Value) {
        let (Value::List(node) | Value::Dictionary(node)) = value else { return };
        if let Some(node) = self.nodes.get_mut(node as usize) {
            let freed = match node {
                Node::List(items) => OF_VALUE * items.len() as u64,
                Node::Dictionary(entries) => OF_ENTRY * entries.len() as u64,
                Node::Forgotten => 0,
            };
            *node = Node::Forgotten;
            self.taken -= freed;
        }
    }

    fn remember(&mut self, place: u64) -> Result<(), Fault> {
        let top = self.top()?;
        if self.memo.insert(place, top).is_none() {
            self.taken += OF_MEMO;
        }
        Ok(())
    }

    fn recall(&mut self, place: u64) -> Result<(), Fault> {
        let value = self.memo.get(&place).copied().ok_or(Fault::NotPickled)?;
        self.stack.push(value);
        Ok(())
    }
}

/// What Python calls an instruction that is refused.
fn name(opcode: u8) -> &'static str {
    match opcode {
        b'c' => "GLOBAL",
        0x93 => "STACK_GLOBAL",
        b'R' => "REDUCE",
        b'b' => "BUILD",
        b'i' => "INST",
        b'o' => "OBJ",
        0x81 => "NEWOBJ",
        0x92 => "NEWOBJ_EX",
        b'P' | b'Q' => "PERSID",
        0x82..=0x84 => "EXT",
        0x8f..=0x91 => "a set",
        0x97 | 0x98 => "NEXT_BUFFER",
        _ => "unknown",
    }
}
