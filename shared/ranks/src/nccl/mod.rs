//! Ranks on GPUs: tensors go through NCCL on libtorch's current stream, the rest over TCP, where the death of a rank is
//! noticed; it aborts what NCCL has under way, which would wait for ever.

mod library;

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tch::{Device, Tensor};

use crate::flat;
use crate::{Group, RanksError, TcpGroup};
use library::{Config, Cuda, FLOAT32, Handle, IN_PROGRESS, Nccl, SUCCESS, SUM, Stream, UINT8, UniqueId};

const LIBRARY: &str = "libnccl.so.2";
/// How long the end of the last calls is waited for when a group is dropped.
const FINALIZE: Duration = Duration::from_secs(10);
/// Questions without a pause before the waiting begins to sleep.
const SPIN: u32 = 2000;
const PAUSE: Duration = Duration::from_micros(50);

/// Ranks with one GPU each.
///
/// [`Group::sum_tensors`] returns when the sums are there, so that its success means that no rank was lost meanwhile.
/// [`Group::gather`] returns when it is in the stream; if a rank is lost before it is done, the whole has arbitrary
/// contents and the next call fails.
pub struct NcclGroup {
    // Dropped before the connections that it needs to be aborted by.
    comm: Arc<Comm>,
    cuda: Cuda,
    device: i32,
    control: TcpGroup,
}

/// NCCL's communicator, until it is aborted or destroyed.
struct Comm {
    nccl: Nccl,
    handle: Mutex<Option<Owned>>,
}

struct Owned(Handle);

// SAFETY: NCCL's communicators may be used by any thread, one at a time; the mutex sees to that.
#[expect(unsafe_code, reason = "a raw pointer of a library that allows it")]
unsafe impl Send for Owned {}

impl Comm {
    fn lock(&self) -> MutexGuard<'_, Option<Owned>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends everything that is under way; later calls find nothing.
    #[expect(unsafe_code, reason = "a C call")]
    fn abort(&self) {
        if let Some(owned) = self.lock().take() {
            // SAFETY: the handle is valid, and nobody uses it hereafter because it was taken.
            let result = unsafe { (self.nccl.abort)(owned.0) };
            if let Err(error) = self.nccl.check("ncclCommAbort", result) {
                tracing::warn!(%error, "NCCL could not be aborted");
            }
        }
    }

    /// State of what was started: `None` when the communicator is gone.
    #[expect(unsafe_code, reason = "a C call")]
    fn state(&self) -> Option<Result<bool, RanksError>> {
        let guard = self.lock();
        let owned = guard.as_ref()?;
        let mut state = SUCCESS;
        // SAFETY: the handle is valid while the lock is held; the pointer is to a local variable.
        let result = unsafe { (self.nccl.async_error)(owned.0, &raw mut state) };
        Some(self.nccl.check("ncclCommGetAsyncError", result).and_then(|()| match state {
            IN_PROGRESS => Ok(false),
            _ => self.nccl.check("NCCL", state).map(|()| true),
        }))
    }
}

impl NcclGroup {
    /// Makes a group of the ranks of `control`, each with its own `device`. Returns when all are there.
    ///
    /// # Errors
    /// When the device is no GPU, NCCL is not there, fails, or a rank is lost meanwhile.
    pub fn new(control: TcpGroup, device: Device) -> Result<Self, RanksError> {
        match Self::prepare(device).and_then(|(nccl, cuda, index)| Self::init(&control, nccl, cuda, index)) {
            Ok((comm, cuda, device)) => Ok(Self { comm, cuda, device, control }),
            Err(error) => Err(control.watch().fail(error)),
        }
    }

    fn prepare(device: Device) -> Result<(Nccl, Cuda, i32), RanksError> {
        let Device::Cuda(index) = device else {
            return Err(RanksError::Input(format!("NCCL works between GPUs, but the device is {device:?}")));
        };
        let index =
            i32::try_from(index).map_err(|_| RanksError::Input(format!("{device:?} is no device")))?;
        let (nccl, cuda) = (Nccl::open(LIBRARY)?, Cuda::open()?);
        // Has libtorch make its CUDA context, which NCCL needs.
        if !tch::Cuda::is_available() || i64::from(index) >= tch::Cuda::device_count() {
            let count = tch::Cuda::device_count();
            return Err(RanksError::Nccl(format!("{device:?} is not there: {count} GPUs can be used")));
        }
        Ok((nccl, cuda, index))
    }

    #[expect(unsafe_code, reason = "C calls")]
    fn init(
        control: &TcpGroup,
        nccl: Nccl,
        cuda: Cuda,
        device: i32,
    ) -> Result<(Arc<Comm>, Cuda, i32), RanksError> {
        cuda.stream(device)?;
        let mut id = UniqueId([0; 128]);
        if control.rank() == 0 {
            // SAFETY: the pointer is to a local variable of the type that the header gives.
            nccl.check("ncclGetUniqueId", unsafe { (nccl.unique_id)(&raw mut id) })?;
        }
        let bytes = control.broadcast(id.0.to_vec())?;
        id.0 = bytes.try_into().map_err(|bytes: Vec<u8>| {
            RanksError::Input(format!("NCCL's id has {} bytes instead of 128", bytes.len()))
        })?;
        let number =
            |value: usize| c_int::try_from(value).map_err(|_| RanksError::Input(format!("{value} ranks")));
        let (rank, world) = (number(control.rank())?, number(control.world())?);
        let (mut handle, mut config) = (std::ptr::null_mut(), Config::without_blocking());
        // SAFETY: pointers to local variables; NCCL copies id and config before it returns.
        let result = unsafe { (nccl.init)(&raw mut handle, world, id, rank, &raw mut config) };
        if result != IN_PROGRESS {
            nccl.check("ncclCommInitRankConfig", result)?;
        }
        let mut version = 0;
        // SAFETY: a pointer to a local variable.
        nccl.check("ncclGetVersion", unsafe { (nccl.version)(&raw mut version) })?;
        let comm = Arc::new(Comm { nccl, handle: Mutex::new(Some(Owned(handle))) });
        let aborted = Arc::clone(&comm);
        control.watch().on_failure(move |_| aborted.abort());
        settle(&comm, control)?;
        tracing::info!(rank, world, version, "NCCL is ready");
        Ok((comm, cuda, device))
    }

    /// Starts something of NCCL with the communicator and the current stream, as one group of calls; returns when it is
    /// in the stream.
    fn start(
        &self,
        call: impl Fn(&Nccl, Handle, Stream) -> Result<(), RanksError>,
    ) -> Result<(), RanksError> {
        if let Some(error) = self.control.watch().failed() {
            return Err(error);
        }
        let enqueued = self.cuda.stream(self.device).and_then(|stream| self.enqueue(stream, call));
        enqueued.map_err(|error| self.control.watch().settle_failure(error))?;
        settle(&self.comm, &self.control)
    }

    #[expect(unsafe_code, reason = "C calls")]
    fn enqueue(
        &self,
        stream: Stream,
        call: impl Fn(&Nccl, Handle, Stream) -> Result<(), RanksError>,
    ) -> Result<(), RanksError> {
        let guard = self.comm.lock();
        let Some(owned) = guard.as_ref() else { return Err(lost(&self.control)) };
        let nccl = &self.comm.nccl;
        // SAFETY: no arguments.
        nccl.check("ncclGroupStart", unsafe { (nccl.group_start)() })?;
        let called = call(nccl, owned.0, stream);
        // SAFETY: ends the group that was started above in this thread.
        let ended = unsafe { (nccl.group_end)() };
        called?;
        if ended == IN_PROGRESS { Ok(()) } else { nccl.check("ncclGroupEnd", ended) }
    }

    /// Waits until the stream has done what it holds.
    fn finish(&self) -> Result<(), RanksError> {
        let stream = self.cuda.stream(self.device)?;
        wait(&self.control, || {
            if let Some(Err(error)) = self.comm.state() {
                return Err(error);
            }
            self.cuda.done(stream)
        })?;
        self.control.watch().failed().map_or(Ok(()), Err)
    }

    fn own(&self, tensor: &Tensor, what: &str) -> Result<(), RanksError> {
        let own = Device::Cuda(usize::try_from(self.device).expect("it came from an index"));
        if tensor.device() == own {
            return Ok(());
        }
        Err(RanksError::Input(format!("{what} is on {:?}, this rank's device is {own:?}", tensor.device())))
    }
}

/// Waits until NCCL has taken a call over.
fn settle(comm: &Comm, control: &TcpGroup) -> Result<(), RanksError> {
    wait(control, || comm.state().unwrap_or_else(|| Err(lost(control))))
}

/// Asks again and again; ends with the group's failure or its timeout.
fn wait(control: &TcpGroup, mut ready: impl FnMut() -> Result<bool, RanksError>) -> Result<(), RanksError> {
    let deadline = Instant::now() + control.timeout();
    for round in 0_u32.. {
        match ready() {
            Ok(true) => return Ok(()),
            Ok(false) if round < SPIN => std::thread::yield_now(),
            Ok(false) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Ok(false) => {
                let seconds = control.timeout().as_secs();
                return Err(control.watch().fail(RanksError::Nccl(format!("no end after {seconds} s"))));
            }
            // The loss of a rank, once known, explains what NCCL says about it.
            Err(error) => return Err(control.watch().settle_failure(error)),
        }
        if let Some(error) = control.watch().failed() {
            return Err(error);
        }
    }
    Err(lost(control))
}

fn lost(control: &TcpGroup) -> RanksError {
    let unknown = || RanksError::Nccl("NCCL's communicator was aborted".into());
    control.watch().failed().unwrap_or_else(unknown)
}

impl Group for NcclGroup {
    fn rank(&self) -> usize {
        self.control.rank()
    }

    fn world(&self) -> usize {
        self.control.world()
    }

    fn sum(&self, values: &mut [f64]) -> Result<(), RanksError> {
        self.control.sum(values)
    }

    fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>, RanksError> {
        self.control.broadcast(bytes)
    }

    #[expect(unsafe_code, reason = "C calls on the memory of tensors")]
    fn sum_tensors(&self, tensors: &[Tensor]) -> Result<(), RanksError> {
        tch::no_grad(|| {
            let flat = flat::floats(tensors)?;
            tensors.iter().try_for_each(|tensor| self.own(tensor, "a tensor to be added"))?;
            // Shows that every rank calls this with the same sizes, which NCCL does not check.
            self.control.agree(flat.iter().map(Tensor::numel).sum::<usize>() * 4)?;
            self.start(|nccl, handle, stream| {
                flat.iter().filter(|tensor| tensor.numel() > 0).try_for_each(|tensor| {
                    let data: *mut c_void = tensor.data_ptr();
                    // SAFETY: the memory of a contiguous f32 tensor of that many elements, which `flat` keeps alive
                    // until the stream is done (below); the handle is valid while `start` holds its lock.
                    let result = unsafe {
                        (nccl.all_reduce)(data, data, tensor.numel(), FLOAT32, SUM, handle, stream)
                    };
                    if result == IN_PROGRESS { Ok(()) } else { nccl.check("ncclAllReduce", result) }
                })
            })?;
            flat::copy_back(tensors, &flat);
            self.finish()
        })
    }

    #[expect(unsafe_code, reason = "C calls on the memory of tensors")]
    fn gather(&self, part: &Tensor, whole: &Tensor) -> Result<(), RanksError> {
        tch::no_grad(|| {
            let (own, all) = flat::gather_views(part, whole, self.world())?;
            self.own(part, "the part")?;
            self.own(whole, "the whole")?;
            if own.numel() == 0 {
                return Ok(());
            }
            self.start(|nccl, handle, stream| {
                // SAFETY: the memory of flat byte tensors, of `world` times the part's bytes; libtorch gives memory of a
                // tensor that is freed only to later work of the same stream.
                let result = unsafe {
                    (nccl.all_gather)(own.data_ptr(), all.data_ptr(), own.numel(), UINT8, handle, stream)
                };
                if result == IN_PROGRESS { Ok(()) } else { nccl.check("ncclAllGather", result) }
            })
        })
    }
}

impl Drop for NcclGroup {
    /// Waits a little for the other ranks to be done with what they share, then gives everything back.
    #[expect(unsafe_code, reason = "C calls")]
    fn drop(&mut self) {
        let nccl = &self.comm.nccl;
        if std::thread::panicking() || self.control.watch().failed().is_some() {
            return self.comm.abort();
        }
        {
            let guard = self.comm.lock();
            let Some(owned) = guard.as_ref() else { return };
            // SAFETY: the handle is valid while the lock is held.
            let result = unsafe { (nccl.finalize)(owned.0) };
            if result != SUCCESS && result != IN_PROGRESS {
                drop(guard);
                return self.comm.abort();
            }
        }
        let deadline = Instant::now() + FINALIZE;
        loop {
            match self.comm.state() {
                None => return,
                Some(Ok(true)) => break,
                Some(Ok(false)) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                Some(_) => return self.comm.abort(),
            }
        }
        if let Some(owned) = self.comm.lock().take() {
            // SAFETY: the handle is valid and finalized, and nobody uses it hereafter because it was taken.
            let result = unsafe { (nccl.destroy)(owned.0) };
            if result != IN_PROGRESS
                && let Err(error) = nccl.check("ncclCommDestroy", result)
            {
                tracing::warn!(%error, "NCCL could not be closed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Rendezvous, Token};

    fn alone() -> Result<TcpGroup, RanksError> {
        let rendezvous = Rendezvous::bind((std::net::Ipv4Addr::LOCALHOST, 0).into())?;
        rendezvous.wait(1, &Token::generate(), &Options::default(), || Ok(()))
    }

    #[test]
    fn what_libtorch_with_cuda_brings_along_is_found_without_a_gpu() -> Result<(), RanksError> {
        if Cuda::open().is_ok() {
            let nccl = Nccl::open(LIBRARY)?;
            let mut version = 0;
            #[expect(unsafe_code, reason = "a C call")]
            // SAFETY: a pointer to a local variable.
            nccl.check("ncclGetVersion", unsafe { (nccl.version)(&raw mut version) })?;
            assert!(version >= 21_800, "{version}");
            let error =
                nccl.check("ncclAllReduce", 4).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.starts_with("ncclAllReduce: invalid argument"), "{error}");
        }
        Ok(())
    }

    #[test]
    fn a_cpu_is_refused() -> Result<(), RanksError> {
        let error = NcclGroup::new(alone()?, Device::Cpu).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("NCCL works between GPUs, but the device is Cpu"));
        Ok(())
    }

    #[test]
    fn one_gpu_is_a_group_and_a_missing_one_is_named() -> Result<(), RanksError> {
        if !tch::Cuda::is_available() {
            let error = NcclGroup::new(alone()?, Device::Cuda(0)).err().map(|error| error.to_string());
            let error = error.unwrap_or_default();
            let missing = ["Cuda(0) is not there: 0 GPUs", "libnccl.so.2 is not there", "has no CUDA"];
            assert!(missing.iter().any(|text| error.contains(text)), "{error}");
            return Ok(());
        }
        let group = NcclGroup::new(alone()?, Device::Cuda(0))?;
        let own = Tensor::from_slice(&[1.5_f32, 2.5]).to_device(Device::Cuda(0));
        group.sum_tensors(&[own.shallow_clone()])?;
        let whole = own.zeros_like();
        group.gather(&own, &whole)?;
        assert!(whole.equal(&Tensor::from_slice(&[1.5_f32, 2.5]).to_device(Device::Cuda(0))));
        Ok(())
    }
}
