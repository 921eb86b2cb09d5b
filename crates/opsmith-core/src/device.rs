//! Where tensors are and ops run.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// The kind of a device. The numbers are DLPack's and cross the C ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum DeviceKind {
    /// The CPU, whose memory is host memory.
    Cpu = 1,
    /// A card: an NVIDIA GPU.
    Cuda = 2,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeviceKind::Cpu => "CPU",
            DeviceKind::Cuda => "CUDA",
        })
    }
}

/// A device: its kind, and which one of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device {
    /// The kind.
    pub kind: DeviceKind,
    /// Which one, from 0.
    pub index: i32,
}

impl Device {
    /// The CPU, whose memory is host memory.
    pub const CPU: Device = Device { kind: DeviceKind::Cpu, index: 0 };

    /// The card of this number, from 0.
    pub const fn cuda(index: i32) -> Device {
        Device { kind: DeviceKind::Cuda, index }
    }

    /// Its name as programs write it, which [`from_str`](Self::from_str) reads: `cpu`, `cuda:0`.
    pub fn name(self) -> String {
        match self.kind {
            DeviceKind::Cpu => "cpu".to_owned(),
            DeviceKind::Cuda => format!("cuda:{}", self.index),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    /// The device of a name: `cpu`, `cuda:0`, and `cuda`, which is the first.
    fn from_str(name: &str) -> Result<Device> {
        let index = match name {
            "cpu" => return Ok(Device::CPU),
            "cuda" => Some(0),
            _ => {
                let digits =
                    name.strip_prefix("cuda:").filter(|text| text.bytes().all(|c| c.is_ascii_digit()));
                digits.and_then(|digits| digits.parse().ok())
            }
        };
        let wrong = || {
            Error::invalid_argument(format!(
                "`{name}` is not a device: expected `cpu`, or `cuda:` and a number from 0, as in `cuda:0`"
            ))
        };
        index.map(Device::cuda).ok_or_else(wrong)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for device in [Device::CPU, Device::cuda(0), Device::cuda(12)] {
            assert_eq!(device.name().parse(), Ok(device));
        }
        assert_eq!("cuda".parse(), Ok(Device::cuda(0)));
        for wrong in
            ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:+1", "CUDA:0", "cpu:1", "cuda:99999999999"]
        {
            let error = wrong.parse::<Device>().unwrap_err();
            assert!(
                error
                    .message()
                    .starts_with(&format!("`{wrong}` is not a device: expected `cpu`, or `cuda:`")),
                "{error}"
            );
        }
    }
}
