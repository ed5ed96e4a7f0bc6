//! The C interface of flite 2.2, loaded at run time. The only unsafe code of this crate.
//!
//! Flite keeps process-wide tables and is not safe for concurrent use: one [`Flite`] exists, on one thread
//! ([`crate::flite_engine`]). Its pointers never leave this file. Declarations follow `flite.h`, `cst_item.h`,
//! `cst_relation.h`, `cst_utt_utils.h` and `cst_wave.h`.
#![expect(unsafe_code, reason = "flite is a C library that is loaded at run time")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_float, c_int, c_short, c_uint, c_void};

use libloading::os::unix::Library;

use crate::error::TtsError;

/// Debian package of every library that is loaded here.
const PACKAGE: &str = "libflite1";
/// Voices, by the name in their library.
pub(crate) const VOICES: [&str; 4] = ["slt", "rms", "awb", "kal16"];

type Voice = *mut c_void;
type Utt = *mut c_void;
type Relation = *mut c_void;
type Item = *const c_void;

/// `cst_wave` of `cst_wave.h`.
#[repr(C)]
struct Wave {
    kind: *const c_char,
    sample_rate: c_int,
    num_samples: c_int,
    num_channels: c_int,
    samples: *const c_short,
}

unsafe extern "C" {
    /// From the C library: flite draws the noise of its excitation from `rand`.
    fn srand(seed: c_uint);
}

/// The functions used, copied out of the library that `_library` keeps loaded.
struct Api {
    synth_text: unsafe extern "C" fn(*const c_char, Voice) -> Utt,
    delete_utterance: unsafe extern "C" fn(Utt),
    utt_wave: unsafe extern "C" fn(Utt) -> *const Wave,
    relation_present: unsafe extern "C" fn(Utt, *const c_char) -> c_int,
    relation: unsafe extern "C" fn(Utt, *const c_char) -> Relation,
    head: unsafe extern "C" fn(Relation) -> Item,
    next: unsafe extern "C" fn(Item) -> Item,
    daughter: unsafe extern "C" fn(Item) -> Item,
    feature_present: unsafe extern "C" fn(Item, *const c_char) -> c_int,
    feature_string: unsafe extern "C" fn(Item, *const c_char) -> *const c_char,
    path_float: unsafe extern "C" fn(Item, *const c_char) -> c_float,
    _library: Library,
}

/// A whitespace-separated token as flite read it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RawToken {
    /// Its text without punctuation.
    pub name: String,
    /// Start and end of its words in seconds; `None` when nothing was said for it.
    pub span: Option<(f32, f32)>,
}

/// What flite made of a text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RawUtterance {
    pub rate: u32,
    pub pcm: Vec<i16>,
    pub tokens: Vec<RawToken>,
}

/// The loaded library and its voices; stays loaded until the process ends.
pub(crate) struct Flite {
    api: Api,
    voices: HashMap<&'static str, (Library, Voice)>,
}

fn missing(library: &str, error: &libloading::Error) -> TtsError {
    TtsError::EngineMissing { library: library.into(), reason: error.to_string(), package: PACKAGE }
}

fn open(name: &str) -> Result<Library, TtsError> {
    // SAFETY: the named libraries are flite's own; their load-time code only registers C++-free static data.
    unsafe { Library::new(name) }.map_err(|error| missing(name, &error))
}

/// Copies a function pointer out of `library`.
///
/// # Safety
/// `T` must be the function type that the header declares for `symbol`, and must not be called after the library is
/// unloaded.
unsafe fn function<T: Copy>(library: &Library, name: &str, symbol: &str) -> Result<T, TtsError> {
    // SAFETY: passed on to the caller.
    unsafe { library.get::<T>(symbol.as_bytes()) }.map(|f| *f).map_err(|error| missing(name, &error))
}

impl Api {
    fn load() -> Result<Self, TtsError> {
        let name = "libflite.so.1";
        let library = open(name)?;
        // SAFETY: every type is the declaration of the header of flite 2.2, and `library` is kept beside the pointers.
        unsafe {
            let init: unsafe extern "C" fn() -> c_int = function(&library, name, "flite_init")?;
            let api = Self {
                synth_text: function(&library, name, "flite_synth_text")?,
                delete_utterance: function(&library, name, "delete_utterance")?,
                utt_wave: function(&library, name, "utt_wave")?,
                relation_present: function(&library, name, "utt_relation_present")?,
                relation: function(&library, name, "utt_relation")?,
                head: function(&library, name, "relation_head")?,
                next: function(&library, name, "item_next")?,
                daughter: function(&library, name, "item_daughter")?,
                feature_present: function(&library, name, "item_feat_present")?,
                feature_string: function(&library, name, "item_feat_string")?,
                path_float: function(&library, name, "ffeature_float")?,
                _library: library,
            };
            init();
            Ok(api)
        }
    }

    /// Text feature of an item, empty when it has none.
    fn text(&self, item: Item, feature: &CStr) -> String {
        // SAFETY: `item` belongs to a live utterance; a present feature is a NUL-terminated string owned by it.
        unsafe {
            if (self.feature_present)(item, feature.as_ptr()) == 0 {
                return String::new();
            }
            let text = (self.feature_string)(item, feature.as_ptr());
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    }

    /// Items from `first` on.
    fn siblings(&self, first: Item) -> impl Iterator<Item = Item> {
        let own = |item: Item| (!item.is_null()).then_some(item);
        // SAFETY: `item` belongs to a live utterance; `item_next` gives null at the end.
        std::iter::successors(own(first), move |&item| own(unsafe { (self.next)(item) }))
    }

    /// Seconds at which the first segment of a word starts and its last ends; missing paths read as zero.
    fn word_span(&self, word: Item) -> (f32, f32) {
        let start = c"R:SylStructure.daughter1.daughter1.R:Segment.p.end";
        let end = c"R:SylStructure.daughtern.daughtern.R:Segment.end";
        // SAFETY: `word` belongs to a live utterance; paths that lead nowhere give 0.
        unsafe { ((self.path_float)(word, start.as_ptr()), (self.path_float)(word, end.as_ptr())) }
    }

    fn tokens(&self, utterance: Utt) -> Vec<RawToken> {
        // SAFETY: the utterance is live; the relation is asked for only when it is there.
        let head = unsafe {
            if (self.relation_present)(utterance, c"Token".as_ptr()) == 0 {
                return Vec::new();
            }
            (self.head)((self.relation)(utterance, c"Token".as_ptr()))
        };
        self.siblings(head)
            .map(|token| {
                // SAFETY: `token` belongs to the live utterance; no daughter gives null.
                let first = unsafe { (self.daughter)(token) };
                let spans = self.siblings(first).map(|word| self.word_span(word)).filter(|(s, e)| s < e);
                let span = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
                RawToken { name: self.text(token, c"name"), span }
            })
            .collect()
    }

    fn wave(&self, utterance: Utt) -> Option<(u32, Vec<i16>)> {
        // SAFETY: the utterance is live and owns the wave; `samples` holds `num_samples * num_channels` values, and
        // every voice used here is mono.
        unsafe {
            let wave = (self.utt_wave)(utterance).as_ref()?;
            let samples = usize::try_from(wave.num_samples).ok()?;
            if wave.samples.is_null() || wave.num_channels != 1 {
                return None;
            }
            let pcm = std::slice::from_raw_parts(wave.samples, samples).to_vec();
            Some((u32::try_from(wave.sample_rate).ok()?, pcm))
        }
    }
}

impl Flite {
    pub(crate) fn load() -> Result<Self, TtsError> {
        Ok(Self { api: Api::load()?, voices: HashMap::new() })
    }

    fn voice(&mut self, name: &str) -> Result<Voice, TtsError> {
        let Some(name) = VOICES.into_iter().find(|v| *v == name) else {
            return Err(TtsError::UnknownVoice { found: name.into(), known: VOICES.join(", ") });
        };
        if let Some((_, voice)) = self.voices.get(name) {
            return Ok(*voice);
        }
        let file = format!("libflite_cmu_us_{name}.so.1");
        let library = open(&file)?;
        let symbol = format!("register_cmu_us_{name}");
        // SAFETY: the declaration of a voice's `register_` function; null asks for the built-in data. `flite_init` ran.
        let voice = unsafe {
            let register: unsafe extern "C" fn(*const c_char) -> Voice = function(&library, &file, &symbol)?;
            register(std::ptr::null())
        };
        if voice.is_null() {
            return Err(TtsError::NoSound { engine: file, words: 0 });
        }
        self.voices.insert(name, (library, voice));
        Ok(voice)
    }

    /// Says `text` as one utterance. `None` when flite gives no sound.
    pub(crate) fn say(&mut self, voice: &str, text: &CString) -> Result<Option<RawUtterance>, TtsError> {
        let voice = self.voice(voice)?;
        // SAFETY: `text` is NUL-terminated and outlives the call; the utterance is freed once, after its data are
        // copied. Nothing else in this process calls `rand`, so the seed makes the sound repeatable.
        unsafe {
            srand(1);
            let utterance = (self.api.synth_text)(text.as_ptr(), voice);
            if utterance.is_null() {
                return Ok(None);
            }
            let wave = self.api.wave(utterance);
            let tokens = self.api.tokens(utterance);
            (self.api.delete_utterance)(utterance);
            Ok(wave.map(|(rate, pcm)| RawUtterance { rate, pcm, tokens }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_reported_with_the_package_that_has_it() {
        let error = open("libflite_no_such_voice.so.1").expect_err("there is no such library");
        assert_eq!(error.code(), domain::ErrorCode::SynthesisFailed);
        let text = error.to_string();
        assert!(text.contains("libflite_no_such_voice.so.1") && text.contains("\"libflite1\""), "{text}");
    }
}
