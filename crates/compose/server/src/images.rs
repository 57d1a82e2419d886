//! The images of this host, as the platform asks for them.

use std::path::PathBuf;

use astrabox_engine::Registration;
use astrabox_images::{ImageStore, image_name};
use astrabox_platform::Images;
use astrabox_registry::Registry;

/// Finds images in the cache by the recipes of the engines.
pub(crate) struct BuiltImages {
    pub(crate) store: ImageStore,
    pub(crate) engines: Registry<Registration>,
}

impl Images for BuiltImages {
    fn name_for(&self, engine: &'static str) -> String {
        match self.engines.get(engine) {
            Some(engine_entry) => image_name(engine, &engine_entry.adapter().image_recipe()),
            None => engine.to_owned(),
        }
    }

    fn find(&self, name: &str) -> Option<PathBuf> {
        // The look-up runs on the blocking pool and reads one small file; the platform asks without waiting.
        match futures::executor::block_on(self.store.find(name)) {
            Ok(image) => image.map(|image| image.root),
            Err(error) => {
                tracing::warn!(image = name, %error, "an image cannot be used");
                None
            }
        }
    }

    fn build_command(&self, engine: &'static str) -> String {
        format!("astrabox image build {engine}")
    }
}
