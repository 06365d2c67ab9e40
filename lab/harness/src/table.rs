//! A table of a Markdown report.

/// Column names, and rows that have one cell for each column.
#[derive(Debug, Default, Clone)]
pub struct Table {
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table with these columns and without rows.
    #[must_use]
    pub fn with_columns<Name: Into<String>>(head: impl IntoIterator<Item = Name>) -> Self {
        Self { head: head.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Returns the table as Markdown. Columns of numbers are aligned to the right.
    #[must_use]
    pub fn markdown(&self) -> String {
        let starts_as_number =
            |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit() || c == '–' || c == '-');
        let is_number = |column: usize| {
            column > 0 && self.rows.iter().all(|row| starts_as_number(&row[column]))
        };
        let rule = (0..self.head.len()).map(|column| if is_number(column) { "--:" } else { "---" });
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("|{}|\n", rule.collect::<Vec<_>>().join("|"));
        line(&self.head) + &rule + &self.rows.iter().map(|row| line(row)).collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_columns_are_right_aligned() {
        let mut table = Table::with_columns(["name", "lost", "in words"]);
        table.rows.push(["a", "0", "nothing"].map(str::to_owned).to_vec());
        table.rows.push(["b", "–", ""].map(str::to_owned).to_vec());
        let expected =
            "| name | lost | in words |\n|---|--:|---|\n| a | 0 | nothing |\n| b | – |  |\n";
        assert_eq!(table.markdown(), expected);
    }
}
