//! Files that were changed at random, read by all readers: what is not refused means what a naive reader
//! says. The same functions as the fuzz targets have; `VRAMPOOL_MUTATIONS` says how many files, if more than
//! a few.

mod readers;

use fastrand::Rng;
use flate2::{Compression, write::GzEncoder};
use std::io::Write;
use vrampool::SizeTable;
use vrampool_trace::{Export, Format, Import, fitted};

const SNAPSHOT: &[u8] = include_bytes!("golden/snapshot.pickle");
const RMM: &[u8] = include_bytes!("golden/rmm.csv");
const CLASSES: &[u8] = b"vrampool fitted classes 1\n# by hand\n512\n  4096 # more\n1048576\n";
const OLD: &[u8] = b"op,id,size,stream,t_us\na,0,3000,0,0\na,1,1000,1,4\nf,0,3000,0,9\na,2,64,0,10\n";

/// What means something to a reader.
const TOKENS: [&[u8]; 21] = [
    b"\n",
    b",",
    b"a,9,9,9,9\n",
    b"f,1,0,0,0\n",
    b"end,4,0,0,0\n",
    b"18446744073709551615",
    b"-1",
    b"0x7f8a40000000",
    b"1,0,free,0x1,8,0\n",
    b"1,5,allocate,0x1,8,0\n",
    b"h\x00",
    b"q\x00",
    b"\x94",
    b"(",
    b"u.",
    b"e",
    b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00",
    b"K\x07",
    b"X\x05\x00\x00\x00alloc",
    b"end 3 00000000\n",
    b"#",
];

/// Instructions of pickles of plain data.
const PLAIN: &[u8] = b"(012NIJKMFSUX]eal)t\x85\x86\x87}dsughjpqr\x94\x8a\x88\x8c.";

/// Valid files of every kind.
fn seeds() -> Vec<Vec<u8>> {
    let trace = Import::new().parse(SNAPSHOT).expect("a snapshot");
    let mut seeds: Vec<Vec<u8>> = [SNAPSHOT, RMM, CLASSES, OLD].map(Vec::from).into();
    for format in [Format::Csv, Format::Rmm, Format::PyTorch] {
        let mut bytes = Vec::new();
        Export::new(format).write(&trace, &mut bytes).expect("memory takes everything");
        seeds.push(bytes);
    }
    seeds.push(fitted::text(&SizeTable::new([1, 512, 4096])).into());
    seeds
}

fn mutate(random: &mut Rng, file: &mut Vec<u8>) {
    let at = random.usize(..=file.len());
    let end = (at + random.usize(..40)).min(file.len());
    match random.u8(..8) {
        0 if at < file.len() => file[at] ^= 1 << random.u8(..8),
        1 if at < file.len() => file[at] = random.u8(..),
        2 => drop(file.splice(at..at, random.choice(TOKENS).unwrap_or_default().iter().copied())),
        3 => drop(file.drain(at..end)),
        4 => {
            let copy = file[at..end].to_vec();
            let to = random.usize(..=file.len());
            file.splice(to..to, copy);
        }
        5 if random.u8(..8) == 0 => file.truncate(at),
        6 if at < file.len() => file[at] = *random.choice(PLAIN).expect("some"),
        _ => drop(file.splice(at..end, random.choice(TOKENS).unwrap_or_default().iter().copied())),
    }
}

#[test]
fn what_is_read_of_a_changed_file_is_what_a_naive_reader_reads() {
    let count = std::env::var("VRAMPOOL_MUTATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(3000);
    let (seeds, mut random) = (seeds(), Rng::with_seed(30));
    seeds.iter().for_each(|seed| readers::check_all(seed));
    for number in 0..count {
        let mut file = random.choice(&seeds).expect("some").clone();
        for _ in 0..random.usize(1..=4) {
            mutate(&mut random, &mut file);
        }
        if number % 16 == 0 {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&file).expect("memory takes everything");
            file = encoder.finish().expect("memory takes everything");
            mutate(&mut random, &mut file);
        }
        readers::check_all(&file);
    }
}
