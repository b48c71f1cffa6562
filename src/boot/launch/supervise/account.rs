//! What the launcher tells of its job: what the PEs do, who failed first, where their last calls are.

use super::Supervisor;
use crate::boot::launch::verdict;
use crate::error::ranges;
use crate::watch::flight;

impl Supervisor<'_> {
    /// What the job is and what its PEs do, for people.
    pub(super) fn status(&mut self) -> String {
        self.boards.collect();
        let (id, program, n) = (std::process::id(), self.job.program.to_string_lossy(), self.job.n_pes);
        let plural = if n == 1 { "PE" } else { "PEs" };
        let mut text =
            format!("job {id}: {program}, {n} {plural}, running for {:.1} s\n", self.since.elapsed().as_secs_f64());
        text += &match self.boards.table() {
            Some(table) => table,
            None if self.boards.any() => "  all PEs have ended their world\n".into(),
            None => "  no world has begun: the PEs have not all called init\n".into(),
        };
        let (running, ended): (Vec<usize>, Vec<usize>) =
            (0..self.family.pes().len()).partition(|&pe| self.exits[pe].is_none());
        let processes: Vec<String> =
            running.iter().map(|&pe| format!("{pe}: {}", self.family.pes()[pe].as_raw_pid())).collect();
        text += &format!("  processes by PE: {}\n", processes.join(", "));
        if !ended.is_empty() {
            text += &format!("  ended: {}\n", ranges(&ended));
        }
        text
    }

    /// Who failed first, and what the PEs did then. `None` if nobody has failed.
    pub(super) fn failure_text(&self) -> Option<String> {
        let (line, _) = verdict::cause(self.first?, &self.boards.losses(), &self.exits);
        let others = if self.others_ended { "; the other PEs were ended" } else { "" };
        let picture = self.picture.as_ref().map_or("", |(_, text)| text.trim_end());
        let separator = if picture.is_empty() { "" } else { "\n" };
        Some(format!("{line}{others}{separator}{picture}"))
    }

    /// Writes the recorders of all PEs to a file if one was lost; returns a line about it.
    pub(super) fn write_flight_file(&self, report: &str) -> Option<String> {
        let file = self.job.flight_file.as_ref()?;
        if self.boards.losses().is_empty() {
            return None;
        }
        let (id, program) = (std::process::id(), self.job.program.to_string_lossy());
        let text = format!("job {id}: {program}\n{report}\n\n{}", self.boards.recorders()?);
        let name = file.display();
        Some(match flight::write(file, &text) {
            Ok(()) => format!("the last calls of all PEs are in {name}"),
            Err(e) => format!("the last calls of all PEs cannot be written to {name} (SHMEM_FLIGHT_FILE): {e}"),
        })
    }
}
