//! The model trained as a whole: every tensor under its published name, and the file it is saved to.

use std::collections::BTreeMap;
use std::path::Path;

use nn::{dtype_of, tensor_bytes};
use tch::Tensor;
use weights::lora::whole_header;
use weights::{SafetensorsWriter, TensorPlan, lm_inventory};

use super::Lm;
use crate::lora::Trained;
use crate::{AdapterMeta, Param, PersonaplexError};

impl Lm {
    /// Makes every tensor require gradients, in the model's kind: full fine-tuning. Gradients have the same kind, so a
    /// trainer of a bf16 model keeps f32 masters and takes the gradients of every micro-batch off.
    ///
    /// # Errors
    /// When there is an adapter on the model or its layers are streamed.
    pub fn train_all(&mut self) -> Result<(), PersonaplexError> {
        if matches!(self.trained, Trained::Adapters(_)) {
            return Err(PersonaplexError::AdapterPresent);
        }
        self.refuse_streamed("training every tensor")?;
        for param in self.parameters() {
            let _ = param.tensor.set_requires_grad(true);
        }
        self.trained = Trained::Everything;
        self.revision += 1;
        Ok(())
    }

    /// Every tensor of the checkpoint in a fixed order, `*` for the step where the steps' tensors are one here.
    pub(crate) fn parameters(&self) -> Vec<Param> {
        let mut all: Vec<Param> =
            self.tables().into_iter().map(|(name, t)| Param::of(name, t.base())).collect();
        all.push(Param::of("text_linear.weight", &self.text_linear.weight));
        all.extend(self.temporal.parameters());
        all.extend(self.depformer.parameters());
        all
    }

    /// Writes the language model to `path` under the published names, tensor by tensor, in the model's kind; the file
    /// appears complete or not at all. [`Lm::from_file`] reads it back, strictly.
    ///
    /// # Errors
    /// When the model is not trained as a whole, or the file cannot be written.
    pub fn save_whole(&self, path: &Path, meta: &AdapterMeta) -> Result<(), PersonaplexError> {
        if self.trained != Trained::Everything {
            return Err(PersonaplexError::NotWhole);
        }
        let mut found: BTreeMap<String, Tensor> = BTreeMap::new();
        for Param { name, tensor } in self.parameters() {
            if name.contains('*') {
                let steps = tensor.unbind(0).into_iter().enumerate();
                found.extend(steps.map(|(step, t)| (name.replace('*', &step.to_string()), t)));
            } else {
                found.insert(name, tensor);
            }
        }
        let mut plan = Vec::new();
        for spec in lm_inventory(&self.config) {
            plan.push(TensorPlan {
                dtype: dtype_of(&found[&spec.name])?,
                name: spec.name,
                shape: spec.shape,
            });
        }
        let names: Vec<String> = plan.iter().map(|t| t.name.clone()).collect();
        let mut writer = SafetensorsWriter::create(path, plan, &whole_header(meta))?;
        for name in names {
            writer.tensor(&name, &tensor_bytes(&found[&name])?)?;
        }
        Ok(writer.finish()?)
    }
}
