//! Abbreviations, units and names that are read differently from how they are written.

/// Words for an abbreviation written with its dot, lower case without the last dot.
pub(crate) fn dotted_abbreviation(core: &str) -> Option<&'static str> {
    Some(match core {
        "dr" => "doctor",
        "mr" => "mister",
        "mrs" => "missus",
        "ms" => "miz",
        "prof" => "professor",
        "ave" => "avenue",
        "blvd" => "boulevard",
        "rd" => "road",
        "apt" => "apartment",
        "ste" => "suite",
        "inc" => "incorporated",
        "ltd" => "limited",
        "corp" => "corporation",
        "co" => "company",
        "jr" => "junior",
        "sr" => "senior",
        "vs" => "versus",
        "etc" => "et cetera",
        "approx" => "approximately",
        "dept" => "department",
        "est" => "estimated",
        "ext" => "extension",
        "e.g" => "for example",
        "i.e" => "that is",
        "a.m" => "a m",
        "p.m" => "p m",
        "u.s" => "u s",
        "jan" => "january",
        "feb" => "february",
        "mar" => "march",
        "apr" => "april",
        "aug" => "august",
        "sept" | "sep" => "september",
        "oct" => "october",
        "nov" => "november",
        "dec" => "december",
        _ => return None,
    })
}

/// Words for an abbreviation that needs no dot, lower case.
pub(crate) fn plain_abbreviation(core: &str) -> Option<&'static str> {
    Some(match core {
        "mr" => "mister",
        "mrs" => "missus",
        "vs" => "versus",
        "w/" => "with",
        "w/o" => "without",
        "ok" => "okay",
        _ => return None,
    })
}

/// A unit after a number: for one, for more.
pub(crate) fn unit(core: &str) -> Option<(&'static str, &'static str)> {
    Some(match core {
        "mg" => ("milligram", "milligrams"),
        "mcg" => ("microgram", "micrograms"),
        "g" => ("gram", "grams"),
        "kg" => ("kilogram", "kilograms"),
        "lb" | "lbs" => ("pound", "pounds"),
        "oz" => ("ounce", "ounces"),
        "L" => ("liter", "liters"),
        "ml" | "mL" => ("milliliter", "milliliters"),
        "mm" => ("millimeter", "millimeters"),
        "cm" => ("centimeter", "centimeters"),
        "km" => ("kilometer", "kilometers"),
        "ft" => ("foot", "feet"),
        "mi" => ("mile", "miles"),
        "mph" => ("mile per hour", "miles per hour"),
        "kWh" | "kwh" => ("kilowatt hour", "kilowatt hours"),
        "kW" => ("kilowatt", "kilowatts"),
        "KB" => ("kilobyte", "kilobytes"),
        "MB" => ("megabyte", "megabytes"),
        "GB" => ("gigabyte", "gigabytes"),
        "TB" => ("terabyte", "terabytes"),
        "Mbps" => ("megabit per second", "megabits per second"),
        "Gbps" => ("gigabit per second", "gigabits per second"),
        "ms" => ("millisecond", "milliseconds"),
        "sec" | "secs" => ("second", "seconds"),
        "min" | "mins" => ("minute", "minutes"),
        "hr" | "hrs" | "h" => ("hour", "hours"),
        "mo" | "mos" => ("month", "months"),
        "yr" | "yrs" => ("year", "years"),
        "sqft" => ("square foot", "square feet"),
        _ => return None,
    })
}

/// Multiplier after an amount.
pub(crate) fn scale(core: &str) -> Option<&'static str> {
    Some(match core {
        "K" | "k" => "thousand",
        "M" | "MM" => "million",
        "B" => "billion",
        "T" => "trillion",
        _ => return None,
    })
}

/// Whether a word multiplies the amount before it.
pub(crate) fn is_scale_word(core: &str) -> bool {
    matches!(core, "hundred" | "thousand" | "million" | "billion" | "trillion")
}

/// Number of a month name or its usual abbreviation, lower case.
pub(crate) fn month_number(core: &str) -> Option<usize> {
    let core = core.trim_end_matches('.');
    MONTHS.iter().position(|m| {
        *m == core || (core.len() == 3 && m.starts_with(core)) || (core == "sept" && *m == "september")
    })
}

/// Month names.
pub const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// One and many of a currency sign, and its hundredth.
pub(crate) fn currency(sign: char) -> Option<[&'static str; 4]> {
    Some(match sign {
        '$' => ["dollar", "dollars", "cent", "cents"],
        '\u{20ac}' => ["euro", "euros", "cent", "cents"],
        '\u{a3}' => ["pound", "pounds", "penny", "pence"],
        '\u{a5}' => ["yen", "yen", "sen", "sen"],
        _ => return None,
    })
}

/// A symbol that is said, alone or between letters.
pub(crate) fn symbol(c: char) -> Option<&'static str> {
    Some(match c {
        '&' => "and",
        '@' => "at",
        '%' => "percent",
        '+' => "plus",
        '=' => "equals",
        '#' => "number",
        '\u{b0}' => "degrees",
        '$' => "dollars",
        '\u{20ac}' => "euros",
        '\u{a3}' => "pounds",
        _ => return None,
    })
}

/// Words after which a number is an identifier and read digit by digit.
pub(crate) fn announces_identifier(core: &str) -> bool {
    matches!(
        core,
        "number"
            | "policy"
            | "account"
            | "code"
            | "pin"
            | "id"
            | "ext"
            | "extension"
            | "reference"
            | "confirmation"
            | "ticket"
            | "zip"
            | "claim"
            | "ending"
            | "routing"
            | "tracking"
            | "serial"
            | "digits"
    )
}

/// Capital letters with a vowel that are spelt nevertheless.
pub(crate) fn is_spelt_acronym(core: &str) -> bool {
    matches!(
        core,
        "USA"
            | "US"
            | "UK"
            | "EU"
            | "IRA"
            | "APR"
            | "APY"
            | "CEO"
            | "CFO"
            | "CTO"
            | "COO"
            | "IRS"
            | "ID"
            | "API"
            | "URL"
            | "AI"
            | "ATM"
            | "HSA"
            | "FSA"
            | "ETA"
            | "EMI"
            | "EOB"
            | "HOA"
            | "PMI"
            | "ACH"
            | "AC"
            | "ICU"
            | "MRI"
            | "EKG"
            | "VIP"
            | "FAQ"
            | "DIY"
            | "UPS"
            | "USB"
            | "EIN"
            | "ROI"
            | "GPA"
            | "AAA"
            | "PPO"
            | "HMO"
            | "UTC"
            | "ISP"
            | "VIN"
            | "SUV"
            | "ADHD"
            | "AM"
            | "ACL"
            | "ER"
    )
}
