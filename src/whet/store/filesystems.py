"""Which file systems are shared between machines, and whether a folder is on one.

SQLite's write-ahead log is indexed in memory that all who use the store map from one file. Two
machines never see the same memory, and few network file systems keep the locks that guard it: a
store there works until the day on which it is damaged.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

# By the name that Linux has for it, `fuse.` and the program's name for those in user space. Left
# out are what is local in spite of its looks (overlay, virtiofs inside one guest, fuse.mergerfs)
# and what nobody can write to (cvmfs, squashfs).
NETWORK = frozenset(
    {
        # files of a server
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "coda", "9p"),
        # one file system of many servers
        *("ceph", "glusterfs", "lustre", "beegfs", "gpfs", "pvfs2", "orangefs", "panfs", "wekafs"),
        *("fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs", "fuse.juicefs", "fuse.seaweedfs"),
        *("fuse.weed", "fuse.mfs", "fuse.moosefs", "fuse.lizardfs", "fuse.alluxio-fuse"),
        # files of another machine, by some other protocol
        *("fuse.sshfs", "fuse.curlftpfs", "fuse.davfs", "fuse.davfs2", "davfs", "fuse.smbnetfs"),
        # objects in a cloud, which are replaced whole
        *("fuse.s3fs", "fuse.goofys", "fuse.mountpoint-s3", "fuse.gcsfuse"),
        *("fuse.rclone", "fuse.blobfuse", "fuse.blobfuse2", "fuse.geesefs"),
        # folders of the host in a virtual machine
        *("vboxsf", "vmhgfs", "fuse.vmhgfs-fuse", "prl_fs", "fuse.osxfs", "fuse.grpcfuse"),
    }
)

# gVisor's own 9p: all processes of a sandbox use one kernel, which maps the host's files.
_SANDBOX = (b"directfs", b"cache=remote_revalidating")

# For what a host keeps, after the user's own TMPDIR; the first outlives a restart.
SCRATCH = ("/var/tmp", "/tmp")

_found: dict[tuple[str, int], str] = {}


def network_filesystem(folder: Path) -> str:
    """`nfs4` for a folder on one, also for one that is yet to be made there; "" for a local
    folder, and where the system does not tell."""
    place = os.path.realpath(folder)
    while True:
        try:
            device = os.stat(place).st_dev
            break
        except OSError:
            above = os.path.dirname(place)
            if above == place:
                return ""
            place = above
    if _is_disk(device):
        return ""
    key = place, device
    if key not in _found:
        _found[key] = _network_among(_mounts(), os.fsencode(place))
    return _found[key]


def local_scratch(environ: Mapping[str, str]) -> Path | None:
    """A folder on this machine that only this user can use; None where there is none."""
    for above in (environ.get("TMPDIR", ""), *SCRATCH):
        folder = Path(above, f"whet-{os.getuid()}")
        if folder.is_absolute() and not network_filesystem(folder) and _is_own(folder):
            return folder
    return None


def _is_own(folder: Path) -> bool:
    """Made where it is not there. Everybody may write above it, and so have made it, or a link."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return private and found.st_uid == os.getuid()


def _is_disk(device: int) -> bool:
    """Linux numbers a disk's partitions; what is no disk of this machine has a zero in front.
    Asking the number first saves most people from reading what is mounted."""
    return os.major(device) != 0


def _mounts() -> bytes:
    try:
        with open(MOUNTS, "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""


def _network_among(mounts: bytes, folder: bytes) -> str:
    """By the longest mount point above the folder, of those in one place the last."""
    inside, longest, found = folder.rstrip(b"/") + b"/", b"", b""
    for line in mounts.splitlines():
        fields = line.split(b" ", 5)
        if len(fields) < 6:
            continue
        point = _plain(fields[4])
        if len(point) >= len(longest) and inside.startswith(point.rstrip(b"/") + b"/"):
            longest, found = point, fields[5]
    kind, _, options = found.partition(b" - ")[2].partition(b" ")
    name = kind.decode(errors="replace")
    return name if name in NETWORK and not any(own in options for own in _SANDBOX) else ""


def _plain(escaped: bytes) -> bytes:
    r"""`/mnt/my\040disk` is `/mnt/my disk`."""
    if b"\\" not in escaped:
        return escaped
    return re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8) & 0xFF]), escaped)
