//! Names and source lines of addresses, from the program's symbols and debugging information.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use addr2line::gimli::{
    AttributeValue, DebuggingInformationEntry, DwAt, Dwarf, EndianSlice, Expression, LittleEndian, Operation, Unit,
    constants,
};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SymbolKind};

use crate::sharing::findings::Module;

type Slice = EndianSlice<'static, LittleEndian>;

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The file, as the compiler knew it.
    pub file: String,
    /// The line.
    pub line: u64,
    /// The function, if known.
    pub function: Option<String>,
}

/// A variable that lives as long as the program.
#[derive(Clone)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// Its size.
    pub size: u64,
    /// Where it is declared.
    pub declared: Option<(String, u64)>,
    /// The compiler has split the variable: this is the part that begins at this offset.
    pub part: Option<u64>,
}

/// The program's modules.
pub struct Symbols<'a> {
    modules: Vec<(&'a Module, OnceCell<Option<Image>>)>,
}

/// A module's file.
struct Image {
    lines: Option<addr2line::Context<Slice>>,
    /// Variables by address.
    variables: BTreeMap<u64, Variable>,
    /// Variables that the compiler has made of allocated memory: the pointer's name, and the address.
    bodies: Vec<(String, u64)>,
    /// Functions by address: end and name.
    functions: BTreeMap<u64, (u64, String)>,
}

impl<'a> Symbols<'a> {
    /// Nothing is read before it is needed.
    pub fn new(modules: &'a [Module]) -> Self {
        Self { modules: modules.iter().map(|module| (module, OnceCell::new())).collect() }
    }

    /// The module at this address, and the address in its file.
    fn image(&self, address: u64) -> Option<(&Module, &Image, u64)> {
        let inside = |module: &Module| (module.base..module.end).contains(&address);
        let (module, image) = self.modules.iter().find(|(module, _)| inside(module))?;
        let image = image.get_or_init(|| Image::read(&module.path)).as_ref()?;
        Some((module, image, address - module.base))
    }

    /// The source of the call that returns to this address: the innermost function first, those it is inlined in next.
    fn frames(&self, caller: u64) -> Vec<Source> {
        let Some((_, image, address)) = self.image(caller) else { return Vec::new() };
        let Some(lines) = &image.lines else { return Vec::new() };
        let mut found = Vec::new();
        let Ok(mut frames) = lines.find_frames(address.wrapping_sub(1)).skip_all_loads() else { return found };
        while let Ok(Some(frame)) = frames.next() {
            let Some(location) = frame.location else { continue };
            let (Some(file), Some(line)) = (location.file, location.line) else { continue };
            let function = frame.function.and_then(|name| Some(demangled(&name.raw_name().ok()?)));
            found.push(Source { file: file.to_owned(), line: line.into(), function });
        }
        found
    }

    /// The source of the first of these calls that is in the user's code (and not in a system header); the first that is
    /// in any file if there is none.
    pub fn source(&self, callers: &[u64]) -> Option<Source> {
        let all: Vec<Source> = callers.iter().flat_map(|&caller| self.frames(caller)).collect();
        let users =
            |source: &&Source| !["/usr/", "/lib/", "/opt/"].iter().any(|system| source.file.starts_with(system));
        all.iter().find(users).or(all.first()).cloned()
    }

    /// The function at this address.
    pub fn function(&self, address: u64) -> Option<String> {
        let (_, image, address) = self.image(address)?;
        let (_, (end, name)) = image.functions.range(..=address).next_back()?;
        (address < *end).then(|| demangled(name))
    }

    /// The address as a name or, at least, as a place in a file.
    pub fn name(&self, address: u64) -> String {
        if let Some(name) = self.function(address) {
            return name;
        }
        match self.modules.iter().find(|(module, _)| (module.base..module.end).contains(&address)) {
            Some((module, _)) => format!("{}+{:#x}", module.path.display(), address - module.base),
            None => format!("{address:#x}"),
        }
    }

    /// The variable at this address.
    pub fn variable(&self, address: u64) -> Option<Variable> {
        let (module, image, at) = self.image(address)?;
        let (_, variable) = image.variables.range(..=at).next_back()?;
        (at < variable.address + variable.size)
            .then(|| Variable { address: variable.address + module.base, ..variable.clone() })
    }
}

/// A name that is not mangled stays: `s` alone would else become `short`, which is how that type is mangled.
fn demangled(name: &str) -> String {
    if !["_Z", "_R", "__Z"].iter().any(|start| name.starts_with(start)) {
        return name.to_owned();
    }
    addr2line::demangle_auto(Cow::from(name), None).into_owned()
}

impl Image {
    fn read(path: &Path) -> Option<Self> {
        // Kept to the end of this process, which is near.
        let data: &'static [u8] = fs::read(path).ok()?.leak();
        let elf = ElfFile64::<Endianness, _>::parse(data).ok()?;
        let mut image =
            Self { lines: None, variables: BTreeMap::new(), bodies: Vec::new(), functions: BTreeMap::new() };
        for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
            let (Ok(name), address, size) = (symbol.name(), symbol.address(), symbol.size()) else { continue };
            if symbol.is_undefined() || size == 0 {
                continue;
            }
            match symbol.kind() {
                SymbolKind::Data => {
                    let name = demangled(name);
                    if let Some((pointer, _)) = name.split_once(".body") {
                        image.bodies.push((pointer.to_owned(), address));
                    }
                    image.variables.entry(address).or_insert(Variable {
                        name,
                        address,
                        size,
                        declared: None,
                        part: None,
                    });
                }
                SymbolKind::Text => {
                    image.functions.entry(address).or_insert((address + size, name.to_owned()));
                }
                _ => {}
            }
        }
        let section = |id: addr2line::gimli::SectionId| -> Result<Slice, addr2line::gimli::Error> {
            let section = elf.section_by_name(id.name());
            // Compressed sections are not understood, and are as good as none.
            let data = section.and_then(|section| section.uncompressed_data().ok()).unwrap_or_default();
            let data: &'static [u8] = match data {
                Cow::Borrowed(data) => data,
                Cow::Owned(data) => data.leak(),
            };
            Ok(EndianSlice::new(data, LittleEndian))
        };
        if let Ok(dwarf) = Dwarf::load(section) {
            image.name_variables(&dwarf);
            image.lines = addr2line::Context::from_dwarf(dwarf).ok();
        }
        Some(image)
    }

    /// Adds what the debugging information says of variables with fixed addresses.
    fn name_variables(&mut self, dwarf: &Dwarf<Slice>) {
        let mut units = dwarf.units();
        while let Ok(Some(unit)) = units.next() {
            let Ok(unit) = dwarf.unit(unit) else { continue };
            let mut entries = unit.entries();
            while let Ok(Some(entry)) = entries.next_dfs() {
                if entry.tag() == constants::DW_TAG_variable {
                    self.name_variable(dwarf, &unit, entry);
                }
            }
        }
    }

    fn name_variable(
        &mut self,
        dwarf: &Dwarf<Slice>,
        unit: &Unit<Slice>,
        entry: &DebuggingInformationEntry<Slice>,
    ) -> Option<()> {
        let parts = match entry.attr_value(constants::DW_AT_location) {
            Some(AttributeValue::Exprloc(location)) => parts(dwarf, unit, location)?,
            _ => Vec::new(),
        };
        // A member of a class or namespace refers to its declaration.
        let declaration = match entry.attr_value(constants::DW_AT_specification) {
            Some(AttributeValue::UnitRef(at)) => unit.entry(at).ok(),
            _ => None,
        };
        let attribute = |name| entry.attr_value(name).or_else(|| declaration.as_ref()?.attr_value(name));
        // A member's symbol says more than its name.
        let name = match declaration {
            Some(_) => None,
            None => {
                Some(dwarf.attr_string(unit, attribute(constants::DW_AT_name)?).ok()?.to_string_lossy().into_owned())
            }
        };
        let mut symbols: Vec<u64> = parts.iter().map(|&(address, _)| address).collect();
        if let (true, Some(name)) = (parts.is_empty(), &name) {
            // A pointer to memory that the program allocates once: clang makes that memory a variable, and the pointer
            // goes.
            symbols.extend(self.bodies.iter().filter(|(pointer, _)| pointer == name).map(|(_, address)| address));
        }
        if symbols.is_empty() {
            return None;
        }
        let declared = declared(dwarf, unit, attribute);
        for (i, address) in symbols.iter().enumerate() {
            let Some(variable) = self.variables.get_mut(address) else { continue };
            // The symbol of a function's static variable, and of a part, has a number at its end.
            let known = name.as_ref().filter(|name| variable.name.starts_with(&format!("{name}.")));
            if let Some(known) = known {
                variable.name.clone_from(known);
            }
            variable.part = parts.get(i).and_then(|&(_, part)| part);
            variable.declared.clone_from(&declared);
        }
        Some(())
    }
}

/// Where the variable with this location lies: its address, or the parts that the compiler has split it into, each with its
/// offset in the variable. `None` if any of it has no fixed address.
fn parts(dwarf: &Dwarf<Slice>, unit: &Unit<Slice>, location: Expression<Slice>) -> Option<Vec<(u64, Option<u64>)>> {
    let mut operations = location.operations(unit.encoding());
    let (mut found, mut pending, mut offset) = (Vec::new(), None, 0);
    while let Some(operation) = operations.next().ok()? {
        match operation {
            Operation::Address { address } => pending = Some(address),
            Operation::AddressIndex { index } => pending = Some(dwarf.address(unit, index).ok()?),
            Operation::Piece { size_in_bits, .. } => {
                found.extend(pending.take().map(|address| (address, Some(offset))));
                offset += size_in_bits / 8;
            }
            _ => return None,
        }
    }
    found.extend(pending.map(|address| (address, None)));
    Some(found)
}

/// Where a variable with these attributes is declared: file and line.
fn declared(
    dwarf: &Dwarf<Slice>,
    unit: &Unit<Slice>,
    attribute: impl Fn(DwAt) -> Option<AttributeValue<Slice>>,
) -> Option<(String, u64)> {
    let line = attribute(constants::DW_AT_decl_line)?.udata_value()?;
    let AttributeValue::FileIndex(index) = attribute(constants::DW_AT_decl_file)? else { return None };
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(index)?;
    let name = |value| Some(dwarf.attr_string(unit, value).ok()?.to_string_lossy().into_owned());
    let mut path = std::path::PathBuf::new();
    if let Some(folder) = unit.comp_dir {
        path.push(folder.to_string_lossy().as_ref());
    }
    if let Some(folder) = file.directory(header).and_then(name) {
        path.push(folder);
    }
    path.push(name(file.path_name())?);
    Some((path.to_string_lossy().into_owned(), line))
}
