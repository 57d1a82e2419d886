//! What came out, program by case.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::{Mutex, PoisonError};

use astrabox_tests::Program;
use astrabox_tests::cases::Case;

/// How one case went with one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    /// The fact was seen.
    Passed,
    /// It was not.
    Failed,
    /// The program does not declare what the case needs.
    NotDeclared,
}

impl Cell {
    fn text(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "FAILED",
            Self::NotDeclared => "-",
        }
    }
}

/// All cells; one that was not run in this process is empty.
pub(crate) struct Matrix {
    columns: Vec<&'static str>,
    rows: Vec<(&'static str, &'static str)>,
    cells: Mutex<BTreeMap<(&'static str, &'static str), Cell>>,
}

impl Matrix {
    pub(crate) fn new(programs: &[&'static Program], cases: &[Case]) -> Self {
        Self {
            columns: programs.iter().map(|program| program.name).collect(),
            rows: cases.iter().map(|case| (case.module, case.name)).collect(),
            cells: Mutex::default(),
        }
    }

    pub(crate) fn set(&self, program: &Program, case: &Case, cell: Cell) {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        cells.insert((program.name, case.name), cell);
    }
}

impl Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let width = self
            .rows
            .iter()
            .map(|(module, name)| module.len() + name.len() + 2);
        let width = width.max().unwrap_or_default();
        write!(f, "{:width$}", "live cases (- is not declared)")?;
        for column in &self.columns {
            write!(f, "  {column}")?;
        }
        for (module, name) in &self.rows {
            write!(f, "\n{:width$}", format!("{module}::{name}"))?;
            for column in &self.columns {
                let cell = cells.get(&(*column, *name)).copied().map_or("", Cell::text);
                write!(f, "  {cell:len$}", len = column.len())?;
            }
        }
        let count = |wanted| cells.values().filter(|cell| **cell == wanted).count();
        write!(
            f,
            "\ncells: passed {}, failed {}, not declared {}",
            count(Cell::Passed),
            count(Cell::Failed),
            count(Cell::NotDeclared)
        )
    }
}
