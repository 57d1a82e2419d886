//! Puts the layers together.

use std::path::PathBuf;

use figment::Figment;
use figment::error::Kind as FigmentKind;
use figment::providers::Serialized;

use crate::layers::{Layer, Source};
use crate::{Config, ConfigError, Host};

/// What a configuration is made from; nothing else is looked at.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The user and its folders.
    pub host: Host,
    /// The file that the command line names.
    pub file: Option<PathBuf>,
    /// The environment's variables; others than those of this program may be among them.
    pub variables: Vec<(String, String)>,
    /// `section.key=value`, in order.
    pub overrides: Vec<String>,
}

impl Inputs {
    /// The user and the environment of this process.
    #[must_use]
    pub fn of_process() -> Self {
        // A variable that is not UTF-8 is none of ours.
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self {
            host: Host::of_process(),
            file: None,
            variables,
            overrides: Vec::new(),
        }
    }

    /// Reads every layer and checks the result.
    ///
    /// # Errors
    /// The first key that is unknown or of the wrong type, with its source; then every value that cannot be meant.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let config = self.merge()?;
        config.check()?;
        Ok(config)
    }

    /// The file that is read, if there is one.
    #[must_use]
    pub fn config_file(&self) -> Option<PathBuf> {
        let named = self.file.clone().or_else(|| {
            let variable = self
                .variables
                .iter()
                .find(|(name, _)| name == "ASTRABOX_CONFIG");
            variable
                .map(|(_, value)| PathBuf::from(value))
                .filter(|path| !path.as_os_str().is_empty())
        });
        named.or_else(|| {
            self.host
                .config_files()
                .into_iter()
                .find(|path| path.is_file())
        })
    }

    fn merge(&self) -> Result<Config, ConfigError> {
        let mut layers = Vec::new();
        if let Some(file) = self.config_file() {
            layers.push(Layer::file(&file)?);
        }
        layers.push(Layer::environment(
            self.variables
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        ));
        layers.push(Layer::command_line(&self.overrides)?);
        let mut figment = Figment::from(Serialized::defaults(Config::defaults(&self.host)));
        for layer in &layers {
            layer.check_keys()?;
            figment = figment.merge(layer.clone());
        }
        figment.extract().map_err(|error| explain(error, &layers))
    }
}

/// Names the key and its source; never the value, which may be a secret in the wrong place.
fn explain(error: figment::Error, layers: &[Layer]) -> ConfigError {
    let key = error.path.join(".");
    let source = error.metadata.as_ref().and_then(|metadata| {
        let found = layers
            .iter()
            .map(|layer| &layer.source)
            .find(|source| source.name("") == metadata.name);
        found.map(|source: &Source| source.name(&key))
    });
    let why = match error.kind {
        FigmentKind::InvalidType(_, wanted) | FigmentKind::InvalidValue(_, wanted) => {
            format!("must be {wanted}")
        }
        FigmentKind::UnknownVariant(_, known) => format!("must be one of {}", known.join(", ")),
        other => other.to_string(),
    };
    ConfigError::WrongValue {
        key,
        source_name: source.unwrap_or_else(|| "the configuration".to_owned()),
        why,
    }
}
