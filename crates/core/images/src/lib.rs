//! Builds, lists and removes engine images from the recipes of the linked engines.
