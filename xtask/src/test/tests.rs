use super::choose;
use super::steps::STEPS;

fn names(only: &[&str]) -> Vec<&'static str> {
    let only: Vec<_> = only.iter().map(|&name| name.to_owned()).collect();
    choose(STEPS, &only)
        .unwrap()
        .iter()
        .map(|step| step.name)
        .collect()
}

#[test]
fn without_a_choice_every_step_runs() {
    assert_eq!(names(&[]).len(), STEPS.len());
}

#[test]
fn a_chosen_step_brings_what_it_needs_first() {
    assert_eq!(names(&["tidy"]), ["tools", "tidy"]);
    assert_eq!(
        names(&["image", "fmt"]),
        ["tools", "fmt", "runner", "bins", "image"]
    );
}

#[test]
fn an_unknown_step_is_answered_with_the_known_ones() {
    let error = choose(STEPS, &["nope".to_owned()]).err().unwrap();
    assert!(error.to_string().contains("there is no step nope"));
    assert!(error.to_string().contains("tidy"));
}

#[test]
fn needs_are_known_and_come_earlier() {
    for (index, step) in STEPS.iter().enumerate() {
        for need in step.needs {
            let at = STEPS.iter().position(|other| other.name == *need).unwrap();
            assert!(at < index, "{} needs {need}", step.name);
        }
    }
}
