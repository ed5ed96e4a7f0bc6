//! Tensors as numbers or bytes on the CPU, piece by piece.

use tch::{Device, Kind, Tensor};

use crate::RanksError;

#[cfg(target_endian = "big")]
compile_error!("tensors travel as this machine holds them, which must be little-endian");

/// Part of a tensor in a bucket: which one, from which element, how many.
type Piece = (usize, usize, usize);

/// f32 tensors one after the other, cut into buckets of a bounded size.
pub(crate) struct Buckets {
    /// Flat views of the tensors, or of copies of those that are not contiguous.
    flat: Vec<Tensor>,
    sizes: Vec<usize>,
}

impl Buckets {
    /// # Errors
    /// When one is no f32 tensor.
    pub(crate) fn new(tensors: &[Tensor]) -> Result<Self, RanksError> {
        let flat = floats(tensors)?;
        let sizes = tensors.iter().map(Tensor::numel).collect();
        Ok(Self { flat, sizes })
    }

    /// Elements of all tensors.
    pub(crate) fn elements(&self) -> usize {
        self.sizes.iter().sum()
    }

    /// The pieces of each bucket of at most `limit` elements.
    pub(crate) fn plan(&self, limit: usize) -> Vec<Vec<Piece>> {
        let mut buckets = vec![Vec::new()];
        let mut room = limit;
        for (index, &size) in self.sizes.iter().enumerate() {
            let mut start = 0;
            while start < size {
                if room == 0 {
                    buckets.push(Vec::new());
                    room = limit;
                }
                let count = room.min(size - start);
                buckets.last_mut().expect("there is one from the start").push((index, start, count));
                start += count;
                room -= count;
            }
        }
        buckets
    }

    /// The numbers of one bucket, on the CPU.
    pub(crate) fn read(&self, pieces: &[Piece]) -> Tensor {
        let part =
            |&(index, start, count): &Piece| narrow(&self.flat[index], start, count).to_device(Device::Cpu);
        match pieces {
            [] => Tensor::zeros([0], (Kind::Float, Device::Cpu)),
            _ => Tensor::cat(&pieces.iter().map(part).collect::<Vec<_>>(), 0),
        }
    }

    /// Puts the numbers of one bucket back.
    pub(crate) fn write(&self, pieces: &[Piece], numbers: &Tensor) {
        let mut at = 0;
        for &(index, start, count) in pieces {
            narrow(&self.flat[index], start, count).copy_(&narrow(numbers, at, count));
            at += count;
        }
    }

    /// Copies what was changed to those tensors that are not contiguous.
    pub(crate) fn finish(&self, tensors: &[Tensor]) {
        copy_back(tensors, &self.flat);
    }
}

/// Flat views of f32 tensors, or of copies of those that are not contiguous.
///
/// # Errors
/// When one is no f32 tensor.
pub(crate) fn floats(tensors: &[Tensor]) -> Result<Vec<Tensor>, RanksError> {
    if let Some((index, other)) = tensors.iter().enumerate().find(|(_, tensor)| tensor.kind() != Kind::Float)
    {
        let (kind, size) = (other.kind(), other.size());
        return Err(RanksError::Input(format!(
            "only f32 tensors can be added: number {index} of {size:?} is {kind:?}"
        )));
    }
    Ok(tensors.iter().map(|tensor| tensor.contiguous().view([-1])).collect())
}

/// Copies the contents of [`floats`]' copies to the tensors they were made of.
pub(crate) fn copy_back(tensors: &[Tensor], flat: &[Tensor]) {
    for (tensor, flat) in tensors.iter().zip(flat) {
        if !tensor.is_contiguous() {
            tensor.shallow_clone().copy_(&flat.view_as(tensor));
        }
    }
}

/// The flat bytes of a `gather`'s part and whole.
///
/// # Errors
/// When their sizes, kinds or layout do not fit each other.
pub(crate) fn gather_views(
    part: &Tensor,
    whole: &Tensor,
    world: usize,
) -> Result<(Tensor, Tensor), RanksError> {
    let (own, all) = (part.numel(), whole.numel());
    if all != own * world || part.kind() != whole.kind() || !whole.is_contiguous() {
        return Err(RanksError::Input(format!(
            "{world} parts of {own} elements of {:?} cannot be gathered in {all} elements of {:?}{}",
            part.kind(),
            whole.kind(),
            if whole.is_contiguous() { "" } else { " that are not contiguous" }
        )));
    }
    if own == 0 {
        let none = || Tensor::zeros([0], (Kind::Uint8, Device::Cpu));
        return Ok((none(), none()));
    }
    let bytes = |tensor: &Tensor| tensor.view([-1]).view_dtype(Kind::Uint8);
    Ok((bytes(&part.contiguous()), bytes(whole)))
}

/// The bytes of a flat CPU tensor.
pub(crate) fn raw(flat: &Tensor) -> Vec<u8> {
    match flat.numel() {
        0 => Vec::new(),
        count => bytes(&flat.view_dtype(Kind::Uint8), 0, count * flat.kind().elt_size_in_bytes()),
    }
}

/// A flat CPU tensor of these bytes.
pub(crate) fn from_raw(bytes: &[u8], kind: Kind) -> Tensor {
    let count = bytes.len() / kind.elt_size_in_bytes();
    Tensor::from_data_size(bytes, &[count as i64], kind)
}

/// The bytes `start..start + count` of a flat byte tensor.
pub(crate) fn bytes(flat: &Tensor, start: usize, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    narrow(flat, start, count).to_device(Device::Cpu).copy_data(&mut bytes, count);
    bytes
}

/// Writes bytes into a flat byte tensor.
pub(crate) fn put(flat: &Tensor, start: usize, bytes: &[u8]) {
    narrow(flat, start, bytes.len()).copy_(&Tensor::from_slice(bytes));
}

fn narrow(flat: &Tensor, start: usize, count: usize) -> Tensor {
    flat.narrow(0, start as i64, count as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cut_tensors_without_losing_or_repeating_an_element() -> Result<(), RanksError> {
        let tensors = [
            Tensor::arange(7, (Kind::Float, Device::Cpu)),
            Tensor::zeros([0], (Kind::Float, Device::Cpu)),
            Tensor::arange(6, (Kind::Float, Device::Cpu)).view([2, 3]).transpose(0, 1),
        ];
        let buckets = Buckets::new(&tensors)?;
        let plan = buckets.plan(4);
        assert_eq!(plan, [vec![(0, 0, 4)], vec![(0, 4, 3), (2, 0, 1)], vec![(2, 1, 4)], vec![(2, 5, 1)]]);
        let mut all = Vec::new();
        for pieces in &plan {
            let numbers = buckets.read(pieces);
            all.extend(Vec::<f32>::try_from(&numbers).expect("f32 numbers"));
            buckets.write(pieces, &(numbers * 10.0));
        }
        assert_eq!(all, [0., 1., 2., 3., 4., 5., 6., 0., 3., 1., 4., 2., 5.]);
        buckets.finish(&tensors);
        assert_eq!(
            Vec::<f32>::try_from(&tensors[2].transpose(0, 1).contiguous().view([-1])).ok(),
            Some(vec![0., 10., 20., 30., 40., 50.])
        );
        Ok(())
    }

    #[test]
    fn tensors_of_the_wrong_kind_or_size_are_refused_with_their_numbers() {
        let bf16 = Tensor::zeros([4], (Kind::BFloat16, Device::Cpu));
        let error = Buckets::new(&[bf16.shallow_clone()]).err().map(|error| error.to_string());
        assert!(
            error.as_deref().is_some_and(|text| text.contains("number 0 of [4] is BFloat16")),
            "{error:?}"
        );
        let whole = Tensor::zeros([9], (Kind::BFloat16, Device::Cpu));
        let error = gather_views(&bf16, &whole, 2).err().map(|error| error.to_string());
        assert!(error.as_deref().is_some_and(|text| text.contains("2 parts of 4 elements")), "{error:?}");
    }
}
