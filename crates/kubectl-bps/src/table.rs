//! Aligned columns and trees, as plain text.

/// Blank columns between two cells, as kubectl has them.
const GAP: usize = 3;

/// Lines with columns.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// How deep in the tree each line is, and its cells; 0 is a root, or a line of no tree.
    rows: Vec<(usize, Vec<String>)>,
}

impl Table {
    /// With these headings.
    pub(super) fn new(headings: &[&str]) -> Self {
        let mut table = Self::default();
        table.add(0, headings);
        table
    }

    /// Adds a line.
    pub(super) fn add(&mut self, depth: usize, cells: &[&str]) {
        self.rows.push((depth, cells.iter().map(|cell| (*cell).to_owned()).collect()));
    }

    /// Whether it has nothing but headings.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() <= 1
    }

    /// The text; every line ends with a line feed and has no blanks before it.
    pub(super) fn text(&self) -> String {
        let rows: Vec<Vec<String>> = (0..self.rows.len()).map(|row| self.cells(row)).collect();
        let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            let line = cells.collect::<Vec<_>>().join(&" ".repeat(GAP));
            format!("{}\n", line.trim_end())
        };
        rows.iter().map(line).collect()
    }

    fn cells(&self, row: usize) -> Vec<String> {
        let (depth, cells) = &self.rows[row];
        let mut cells = cells.clone();
        if let (1.., Some(first)) = (depth, cells.first_mut()) {
            let stems: String =
                (1..*depth).map(|level| if self.goes_on(row, level) { "│  " } else { "   " }).collect();
            let branch = if self.goes_on(row, *depth) { "├─ " } else { "└─ " };
            *first = format!("{stems}{branch}{first}");
        }
        cells
    }

    /// Whether another line of this level comes below, under the same parent.
    fn goes_on(&self, row: usize, level: usize) -> bool {
        let next = self.rows[row + 1..].iter().find(|(depth, _)| *depth <= level);
        next.is_some_and(|(depth, _)| *depth == level)
    }
}

/// The text with blanks before each line.
pub(super) fn indented(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("  {line}\n")).collect();
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_branches_end_where_nothing_follows() {
        let mut table = Table::new(&["NAME", "STATE"]);
        table.add(0, &["web", "Ready"]);
        table.add(1, &["one", "a"]);
        table.add(2, &["deep", "b"]);
        table.add(2, &["deeper"]);
        table.add(1, &["two", "", "c"]);
        table.add(2, &["deepest", "dd"]);
        let lines: Vec<String> = table.text().lines().map(str::to_owned).collect();
        assert_eq!(
            lines,
            [
                "NAME            STATE",
                "web             Ready",
                "├─ one          a",
                "│  ├─ deep      b",
                "│  └─ deeper",
                "└─ two                  c",
                "   └─ deepest   dd",
            ]
        );
    }
}
