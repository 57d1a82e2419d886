//! Hashes, and the digest of a recipe.

use std::env::consts::ARCH;
use std::fs;
use std::sync::OnceLock;

use astrabox_engine::{ImageRecipe, NpmPackage, PythonPackages, RecipeCheck, RecipeCopy};
use sha2::{Digest, Sha256};

use crate::pip::PYTHON;

/// Counts the ways in which images were ever laid out: another one makes other images of the same recipes.
const LAYOUT: &str = "astrabox image 1";

/// The digest of everything that decides what an image holds, as 64 hex digits.
pub(crate) fn recipe_digest(engine: &str, recipe: &ImageRecipe) -> String {
    // Taken apart without `..`, so that a new field cannot be forgotten here.
    let ImageRecipe {
        version,
        architectures,
        commands,
        npm,
        python,
        copies,
        check,
        licence,
    } = recipe;
    let mut fields = Fields(Sha256::new());
    fields.text(LAYOUT);
    fields.text(ARCH);
    fields.text(engine);
    fields.text(version);
    fields.list(architectures);
    fields.list(commands);
    match npm {
        None => fields.text("no npm"),
        Some(NpmPackage { manifest, lock }) => fields.list(&[manifest, lock]),
    }
    // Without Python the digest is what it was before recipes could have any: images stay good.
    if let Some(PythonPackages {
        requirements,
        runs_in_box,
    }) = python
    {
        let version = if *runs_in_box { python_version() } else { "" };
        fields.list(&["python", requirements, version]);
    }
    fields.count(copies.len());
    for RecipeCopy { from, to } in *copies {
        fields.list(&[from, to]);
    }
    let RecipeCheck {
        program,
        arguments,
        expect,
    } = check;
    fields.text(program);
    fields.list(arguments);
    fields.text(expect);
    fields.text(licence);
    hex(&fields.0.finalize())
}

/// Which Python the sandboxes of this host have, as `python3.11`: what is compiled for one is not for another. The
/// distributions keep `python3` as a link to it; where it is none, images are not told apart by it.
fn python_version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let target = fs::read_link(PYTHON).unwrap_or_default();
        let name = target.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    })
}

/// Bytes as lowercase hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

/// Fields with their lengths, so that no two different recipes give the same bytes.
struct Fields(Sha256);

impl Fields {
    fn count(&mut self, count: usize) {
        self.0.update((count as u64).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.update(text);
    }

    fn list(&mut self, texts: &[&str]) {
        self.count(texts.len());
        for text in texts {
            self.text(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use astrabox_engine::{ImageRecipe, NpmPackage, PythonPackages, RecipeCheck, RecipeCopy};

    use super::{hex, recipe_digest};

    fn recipe() -> ImageRecipe {
        ImageRecipe {
            version: "1",
            architectures: &["a", "b"],
            commands: &["c"],
            npm: Some(NpmPackage {
                manifest: "m",
                lock: "l",
            }),
            python: None,
            copies: &[RecipeCopy { from: "f", to: "t" }],
            check: RecipeCheck {
                program: "p",
                arguments: &["q"],
                expect: "e",
            },
            licence: "x",
        }
    }

    #[test]
    fn a_change_of_any_field_changes_the_digest() {
        let npm = |manifest, lock| Some(NpmPackage { manifest, lock });
        let python = |requirements, runs_in_box| {
            Some(PythonPackages {
                requirements,
                runs_in_box,
            })
        };
        let check = |program, arguments, expect| RecipeCheck {
            program,
            arguments,
            expect,
        };
        let changes: &[&dyn Fn(&mut ImageRecipe)] = &[
            &|_| (),
            &|r| r.version = "2",
            &|r| r.architectures = &["ab"],
            &|r| r.architectures = &["a"],
            &|r| r.commands = &[],
            &|r| r.npm = None,
            &|r| r.npm = npm("m2", "l"),
            &|r| r.npm = npm("m", "l2"),
            &|r| r.npm = npm("ml", ""),
            &|r| r.python = python("q", false),
            &|r| r.python = python("q2", false),
            &|r| r.python = python("q", true),
            &|r| r.copies = &[],
            &|r| r.copies = &[RecipeCopy { from: "ft", to: "" }],
            &|r| r.check = check("p2", &["q"], "e"),
            &|r| r.check = check("p", &[], "e"),
            &|r| r.check = check("p", &["q"], "e2"),
            &|r| r.licence = "y",
        ];
        let mut digests: BTreeSet<String> = changes
            .iter()
            .map(|change| {
                let mut recipe = recipe();
                change(&mut recipe);
                recipe_digest("codex", &recipe)
            })
            .collect();
        digests.insert(recipe_digest("other", &recipe()));
        assert_eq!(digests.len(), changes.len() + 1);
        assert_eq!(
            recipe_digest("codex", &recipe()),
            recipe_digest("codex", &recipe())
        );
    }

    #[test]
    fn hex_has_two_lowercase_digits_for_a_byte() {
        assert_eq!(hex(&[0, 1, 0x7f, 0xff]), "00017fff");
    }
}
