//! Pickles of plain data, protocols 0 to 5, read without running anything.
//!
//! Read are the instructions for None, truth values, numbers, text, bytes, tuples, lists, dictionaries and
//! the memo. What names, makes or calls anything else is refused by its name, so there is nothing that a
//! pickle could run.
//!
//! Kept is what the reader of a snapshot looks at: whole numbers, of text which of the [words](SnapshotKey) it
//! is, and of frames their [site](Sites). Values are numbers of nodes, not pointers to them: whatever a pickle nests or
//! ties in circles, neither reading nor dropping it recurs. A dictionary has each word once, so that looking one up
//! takes the same time whatever the pickle says.

use super::budget::Budget;
use super::input::Input;
use super::memo::Memo;
use super::pickle_value::{Item, Node, Pickled, Value};
use super::rejected_opcodes::name;
use super::sites::Sites;
use super::snapshot_keys::SnapshotKey;
use crate::error::TraceFault;
use std::io::BufRead;

/// Reads one pickle, and that nothing follows it. `offset` is where the instruction being read begins.
pub(super) fn read(
    input: impl BufRead,
    budget: &mut Budget,
    offset: &mut u64,
) -> Result<Pickled, TraceFault> {
    let mut machine = Machine {
        input: Input::new(input),
        budget,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Memo::default(),
        nodes: Vec::new(),
        sites: Sites::default(),
    };
    loop {
        *offset = machine.input.at();
        if machine.run()? {
            break;
        }
    }
    let root = machine.pop()?;
    *offset = machine.input.at();
    if !machine.input.is_at_end()? {
        return Err(TraceFault::Trailing);
    }
    let Machine { budget, nodes, sites, .. } = machine;
    let pickled = Pickled { root, nodes, origins: sites.into_origins() };
    // The rest is dropped.
    budget.taken = pickled.bytes();
    Ok(pickled)
}

struct Machine<'a, R> {
    input: Input<R>,
    budget: &'a mut Budget,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: Memo,
    nodes: Vec<Node>,
    sites: Sites,
}

impl<R: BufRead> Machine<'_, R> {
    /// Runs one instruction. Returns whether it was the last.
    fn run(&mut self) -> Result<bool, TraceFault> {
        let opcode = self.input.byte()?;
        self.budget.read = Some(self.input.at());
        match opcode {
            b'.' => return Ok(true),
            // Instructions have the same meaning in all protocols.
            0x80 => match self.input.byte()? {
                0..=5 => {}
                protocol => {
                    return Err(TraceFault::invalid(format!(
                        "the pickle has protocol {protocol}; write it with protocol 0 to 5"
                    )));
                }
            },
            // A frame's length: a hint.
            0x95 => self.input.skip(8)?,
            b'(' => {
                self.budget.room(&mut self.marks, 1)?;
                self.marks.push(self.stack.len());
            }
            // A mark, if it is on top.
            b'0' => match self.marks.last() {
                Some(&mark) if mark == self.stack.len() => _ = self.marks.pop(),
                _ => _ = self.pop()?,
            },
            b'1' => self.above_mark(Self::discard)?,
            b'2' => self.top().and_then(|top| self.push(top))?,
            b'N' | 0x88 | 0x89 => self.push(Value::Other)?,
            b'I' | b'L' => self.input.digits().and_then(|value| self.push(value))?,
            b'J' => self.whole::<4>(|bytes| i32::from_le_bytes(bytes).into())?,
            b'K' => self.whole::<1>(|[byte]| byte.into())?,
            b'M' => self.whole::<2>(|bytes| u16::from_le_bytes(bytes).into())?,
            0x8a => self.long::<1>()?,
            0x8b => self.long::<4>()?,
            b'F' | b'S' | b'V' => self.input.line().and_then(|value| self.push(value))?,
            b'G' => self.input.skip(8).and_then(|()| self.push(Value::Other))?,
            b'U' | b'C' | 0x8c => self.text::<1>()?,
            b'T' | b'B' | b'X' => self.text::<4>()?,
            0x8d | 0x8e | 0x96 => self.text::<8>()?,
            b']' | b')' => self.list(self.stack.len())?,
            b'l' | b't' => self.above_mark(Self::list)?,
            0x85..=0x87 => self.above(usize::from(opcode - 0x84), Self::list)?,
            b'a' => self.above(1, Self::append)?,
            b'e' => self.above_mark(Self::append)?,
            b'}' => self.dictionary(self.stack.len())?,
            b'd' => self.above_mark(Self::dictionary)?,
            b's' => self.above(2, Self::set)?,
            b'u' => self.above_mark(Self::set)?,
            b'g' => self.input.place().and_then(|place| self.recall(place))?,
            b'h' => self.input.length::<1>().and_then(|place| self.recall(place))?,
            b'j' => self.input.length::<4>().and_then(|place| self.recall(place))?,
            b'p' => self.input.place().and_then(|place| self.remember(place))?,
            b'q' => self.input.length::<1>().and_then(|place| self.remember(place))?,
            b'r' => self.input.length::<4>().and_then(|place| self.remember(place))?,
            0x94 => self.remember(self.memo.len())?,
            _ => {
                let name = name(opcode);
                return Err(TraceFault::invalid(format!(
                    "the pickle has instruction {opcode:#04x} ({name}), which is not for plain data; pickles are never executed. Write \
                     the snapshot with `torch.cuda.memory._dump_snapshot`"
                )));
            }
        }
        Ok(false)
    }

    /// Calls `act` with the index of the lowest of the top `count` values, which no mark is among.
    fn above(
        &mut self,
        count: usize,
        act: impl FnOnce(&mut Self, usize) -> Result<(), TraceFault>,
    ) -> Result<(), TraceFault> {
        let from = self.below(count)?;
        act(self, from)
    }

    /// Takes the last mark. Calls `act` with the index of the lowest value above it.
    fn above_mark(
        &mut self,
        act: impl FnOnce(&mut Self, usize) -> Result<(), TraceFault>,
    ) -> Result<(), TraceFault> {
        let mark = self.marks.pop().ok_or(TraceFault::NotPickled)?;
        // Values below a mark cannot be taken, so this is the mark.
        act(self, mark.min(self.stack.len()))
    }

    fn discard(&mut self, from: usize) -> Result<(), TraceFault> {
        self.stack.truncate(from);
        Ok(())
    }

    fn push(&mut self, value: Value) -> Result<(), TraceFault> {
        self.budget.room(&mut self.stack, 1)?;
        self.stack.push(value);
        Ok(())
    }

    fn top(&self) -> Result<Value, TraceFault> {
        self.below(1).and_then(|place| self.stack.get(place).copied().ok_or(TraceFault::NotPickled))
    }

    fn pop(&mut self) -> Result<Value, TraceFault> {
        self.below(1)?;
        self.stack.pop().ok_or(TraceFault::NotPickled)
    }

    /// Where the last `count` values begin, which no mark is among.
    fn below(&self, count: usize) -> Result<usize, TraceFault> {
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack.len().checked_sub(count).filter(|&from| from >= floor).ok_or(TraceFault::NotPickled)
    }

    fn whole<const N: usize>(&mut self, of: impl Fn([u8; N]) -> i64) -> Result<(), TraceFault> {
        let bytes = self.input.bytes()?;
        self.push(Value::whole(of(bytes).into()))
    }

    /// A number behind its length of `N` bytes, the lowest byte first, in two's complement.
    fn long<const N: usize>(&mut self) -> Result<(), TraceFault> {
        let len = self.input.length::<N>()?;
        let mut bytes = [0; 16];
        match bytes.get_mut(..usize::try_from(len).unwrap_or(usize::MAX)) {
            Some(low) => {
                self.input.fill(low)?;
                let sign = low.last().is_some_and(|byte| byte & 0x80 != 0);
                let len = low.len();
                bytes[len..].fill(if sign { 0xff } else { 0 });
                self.push(Value::whole(i128::from_le_bytes(bytes)))
            }
            None => {
                self.input.skip(len)?;
                self.push(Value::Other)
            }
        }
    }

    /// Text or bytes behind a length of `N` bytes.
    fn text<const N: usize>(&mut self) -> Result<(), TraceFault> {
        let len = self.input.length::<N>()?;
        // The key of a value is below it.
        let key = self.stack.last().copied();
        let mut text = [0; Sites::TEXT_BYTES];
        let text = &mut text[..len.min(Sites::TEXT_BYTES as u64) as usize];
        // Of a function's name the beginning.
        let rest = len - text.len() as u64;
        let (before, behind) = if key == Some(Value::Key(SnapshotKey::Name)) { (0, rest) } else { (rest, 0) };
        self.input.skip(before)?;
        self.input.fill(text)?;
        self.input.skip(behind)?;
        let value = match SnapshotKey::of(text) {
            Some(key) if rest == 0 => Value::Key(key),
            _ if matches!(key, Some(Value::Key(SnapshotKey::Filename | SnapshotKey::Name))) => {
                self.sites.keep(text, self.budget)?
            }
            _ => Value::Other,
        };
        self.push(value)
    }

    fn node(&mut self) -> Result<u32, TraceFault> {
        let number = u32::try_from(self.nodes.len());
        self.budget.room(&mut self.nodes, 1)?;
        self.nodes.push(Node::Items(Vec::new()));
        number.map_err(|_| TraceFault::TooMuchData(u32::MAX.into()))
    }

    /// A list of the values from there on.
    fn list(&mut self, from: usize) -> Result<(), TraceFault> {
        let node = self.node()?;
        self.extend(node, from)?;
        self.push(Value::List(node))
    }

    /// Of the keys and values from there on.
    fn dictionary(&mut self, from: usize) -> Result<(), TraceFault> {
        let node = self.node()?;
        self.enter(node, from)?;
        self.push(Value::Dictionary(node))
    }

    /// Appends the values from there on to the list below them.
    fn append(&mut self, from: usize) -> Result<(), TraceFault> {
        match self.before(from) {
            Some(Value::List(node)) => self.extend(node, from),
            _ => Err(TraceFault::NotPickled),
        }
    }

    fn extend(&mut self, list: u32, from: usize) -> Result<(), TraceFault> {
        let above = self.stack.get(from..).ok_or(TraceFault::NotPickled)?;
        let Some(Node::Items(items)) = self.nodes.get_mut(list as usize) else {
            return Err(TraceFault::NotPickled);
        };
        self.budget.room(items, above.len())?;
        items.extend(above.iter().map(|&value| Item { key: None, value }));
        self.stack.truncate(from);
        Ok(())
    }

    /// The value below the values from there on, which no mark is between.
    fn before(&self, from: usize) -> Option<Value> {
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack.get(floor..from)?.last().copied()
    }

    /// Sets the keys from there on, each before its value, in the dictionary below them.
    fn set(&mut self, from: usize) -> Result<(), TraceFault> {
        match self.before(from) {
            Some(Value::Dictionary(node)) => self.enter(node, from),
            _ => Err(TraceFault::NotPickled),
        }
    }

    fn enter(&mut self, node: u32, from: usize) -> Result<(), TraceFault> {
        if !(self.stack.len() - from).is_multiple_of(2) {
            return Err(TraceFault::NotPickled);
        }
        for at in (from..self.stack.len()).step_by(2) {
            let (key, mut value) = (self.stack[at], self.stack[at + 1]);
            let Value::Key(key) = key else { continue };
            if key == SnapshotKey::Frames {
                value = self.sites.reduce(&mut self.nodes, value, self.budget)?;
            }
            let Some(Node::Items(entries)) = self.nodes.get_mut(node as usize) else {
                return Err(TraceFault::NotPickled);
            };
            // The last of several is the one that counts, as in Python.
            match entries.iter_mut().find(|entry| entry.key == Some(key)) {
                Some(entry) => entry.value = value,
                None => {
                    self.budget.room(entries, 1)?;
                    entries.push(Item { key: Some(key), value });
                }
            }
        }
        self.stack.truncate(from);
        Ok(())
    }

    fn remember(&mut self, place: u64) -> Result<(), TraceFault> {
        let top = self.top()?;
        self.memo.put(place, top, self.budget)
    }

    fn recall(&mut self, place: u64) -> Result<(), TraceFault> {
        let value = self.memo.get(place).ok_or(TraceFault::NotPickled)?;
        self.push(value)
    }
}
