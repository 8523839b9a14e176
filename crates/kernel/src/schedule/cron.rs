//! Checks the text of a cron expression field by field, and rewrites it with numbers only.
//!
//!     "0 9 */1 * monday-FRI" ──normalize──▶ "0 9 * * 1-5"
//!
//! Invariants
//! - Syntax errors are found here, before the cron library parses the text, so that the message can name the wrong
//!   part.
//! - A name such as MON is accepted only as a whole word, and only in its own field.
//! - A day or weekday field that allows every value is rewritten as `*`, also if it was written `*/1`, `?` or `*,5`.
//!
//! Not here: computing the ticks, and refusing expressions that never match or tick too often (`calendar`).

/// A field of a cron expression, and the values that it may have.
struct Field {
    name: &'static str,
    least: u16,
    most: u16,
    /// The names of the values, from `least` on. The first three letters of a name are enough.
    names: &'static [&'static str],
    /// The other forms that the field accepts, for error messages.
    more: &'static str,
}

const fn field(name: &'static str, least: u16, most: u16) -> Field {
    Field { name, least, most, names: &[], more: "" }
}

const MONTHS: [&str; 12] = [
    "JANUARY",
    "FEBRUARY",
    "MARCH",
    "APRIL",
    "MAY",
    "JUNE",
    "JULY",
    "AUGUST",
    "SEPTEMBER",
    "OCTOBER",
    "NOVEMBER",
    "DECEMBER",
];
const WEEKDAYS: [&str; 7] = ["SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY"];

const FIELDS: [Field; 6] = [
    field("second", 0, 59),
    field("minute", 0, 59),
    field("hour", 0, 23),
    Field { more: ", L, LW, or a day with W such as 15W", ..field("day", 1, 31) },
    Field { names: &MONTHS, more: ", or names such as JAN or January", ..field("month", 1, 12) },
    Field { names: &WEEKDAYS, more: ", or names such as MON or Monday, also as 5L or MON#1", ..field("weekday", 0, 7) },
];
const DAY: &str = "day";
const WEEKDAY: &str = "weekday";
const SUNDAY_AS_LAST: u16 = 7;
/// The largest step. No field has more values than this, so a larger step would make no difference.
const MAX_STEP: u16 = 999;

const MACROS: [(&str, &str); 7] = [
    ("@HOURLY", "0 * * * *"),
    ("@DAILY", "0 0 * * *"),
    ("@MIDNIGHT", "0 0 * * *"),
    ("@WEEKLY", "0 0 * * 0"),
    ("@MONTHLY", "0 0 1 * *"),
    ("@YEARLY", "0 0 1 1 *"),
    ("@ANNUALLY", "0 0 1 1 *"),
];

/// Returns the same expression with numbers only, or a message that says what is wrong.
pub(super) fn normalize(text: &str) -> Result<String, String> {
    if let Some(c) = text.chars().find(|c| !c.is_ascii_alphanumeric() && !" *,-/?#+@".contains(*c)) {
        return Err(format!("{c:?} is not allowed in a cron expression"));
    }
    let text = text.to_ascii_uppercase();
    let written: Vec<&str> = text.split_ascii_whitespace().collect();
    if let [word] = written[..]
        && word.starts_with('@')
    {
        return named(word);
    }
    let fields = FIELDS.len().checked_sub(written.len()).and_then(|from| FIELDS.get(from..)).filter(|f| f.len() >= 5);
    let Some(fields) = fields else {
        return Err("must have five fields (minute hour day month weekday), or six with seconds before them".to_owned());
    };
    let read: Result<Vec<String>, String> =
        fields.iter().zip(written).map(|(field, written)| field.normalize(written)).collect();
    Ok(read?.join(" "))
}

fn named(word: &str) -> Result<String, String> {
    let found = MACROS.iter().find(|(name, _)| *name == word);
    found.map(|(_, meaning)| (*meaning).to_owned()).ok_or_else(|| {
        let names: Vec<String> = MACROS.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        format!("{} is not known: use one of {}", word.to_ascii_lowercase(), names.join(", "))
    })
}

impl Field {
    fn normalize(&self, written: &str) -> Result<String, String> {
        let (both, list) = match written.strip_prefix('+').filter(|_| self.name == WEEKDAY) {
            Some(list) => ("+", list),
            None => ("", written),
        };
        let parts: Result<Vec<String>, String> = list.split(',').map(|part| self.part(part)).collect();
        let parts = parts?;
        if parts.iter().any(|part| part == "*") {
            return Ok(format!("{both}*"));
        }
        if parts.iter().any(|part| part == "L") && parts.iter().any(|part| part == "LW") {
            return Err("L and LW cannot stand in one list: write two schedules".to_owned());
        }
        Ok(format!("{both}{}", parts.join(",")))
    }

    fn part(&self, part: &str) -> Result<String, String> {
        if part.is_empty() {
            return Err(format!("the field of {}s has an empty part", self.name));
        }
        if let Some(special) = self.special(part)? {
            return Ok(special);
        }
        let Some((range, step)) = part.split_once('/') else { return self.range(part) };
        let step = step.parse().ok().filter(|step: &u16| (1..=MAX_STEP).contains(step) && !step_has_sign(part));
        let step = step.ok_or_else(|| format!("{part}: a step is a whole number from 1 to {MAX_STEP}"))?;
        match self.range(range)?.as_str() {
            "*" if step == 1 => Ok("*".to_owned()),
            range if range == "*" || range.contains('-') => Ok(format!("{range}/{step}")),
            from => {
                Err(format!("{part}: a step needs a range before it, such as {from}-{}/{step} or */{step}", self.most))
            }
        }
    }

    /// Reads the forms that only the day and weekday fields have: `L`, `LW`, `15W`, `5L`, `MON#1`.
    fn special(&self, part: &str) -> Result<Option<String>, String> {
        if self.name == DAY {
            if part == "L" || part == "LW" {
                return Ok(Some(part.to_owned()));
            }
            if let Some(day) = part.strip_suffix('W').filter(|day| !day.is_empty()) {
                return Ok(Some(format!("{}W", self.value(day)?)));
            }
        }
        if self.name != WEEKDAY {
            return Ok(None);
        }
        if let Some((days, nth)) = part.split_once('#') {
            let nth = Some(nth).filter(|nth| matches!(*nth, "1" | "2" | "3" | "4" | "5"));
            let nth = nth.ok_or_else(|| {
                format!("{part}: the number after # must be 1 to 5: it selects one such weekday of the month")
            })?;
            return Ok(Some(format!("{}#{nth}", self.range(days)?)));
        }
        if part == "L" {
            return Err("L needs a weekday before it, such as 5L for the last Friday".to_owned());
        }
        match part.strip_suffix('L') {
            Some(day) => Ok(Some(format!("{}L", self.value(day)?))),
            None => Ok(None),
        }
    }

    fn range(&self, part: &str) -> Result<String, String> {
        if part == "*" || (part == "?" && (self.name == DAY || self.name == WEEKDAY)) {
            return Ok("*".to_owned());
        }
        let Some((from, to)) = part.split_once('-') else { return Ok(self.value(part)?.to_string()) };
        let (from, mut to) = (self.bounded(from)?, self.bounded(to)?);
        if self.name == WEEKDAY && to == 0 && from > 0 {
            to = SUNDAY_AS_LAST;
        }
        if from > to {
            return Err(format!("{part} ends before it begins: write two ranges with a comma between them"));
        }
        Ok(format!("{from}-{to}"))
    }

    /// Reads a value outside a range. Sunday becomes 0, because the cron library does not find the last Sunday as `7L`.
    fn value(&self, text: &str) -> Result<u16, String> {
        let value = self.bounded(text)?;
        Ok(if self.name == WEEKDAY && value == SUNDAY_AS_LAST { 0 } else { value })
    }

    fn bounded(&self, text: &str) -> Result<u16, String> {
        let number = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let known = number.or_else(|| self.named(text)).filter(|value| (self.least..=self.most).contains(value));
        known.ok_or_else(|| {
            let Field { name, least, most, more, .. } = self;
            let wrong =
                if text.is_empty() { format!("a {name} is missing") } else { format!("{text} is not a valid {name}") };
            format!("{wrong}: the field of {name}s takes {least} to {most}{more}")
        })
    }

    fn named(&self, text: &str) -> Option<u16> {
        let place = self.names.iter().position(|name| *name == text || name.get(..3) == Some(text))?;
        Some(self.least + u16::try_from(place).ok()?)
    }
}

fn step_has_sign(part: &str) -> bool {
    part.contains("/+")
}
