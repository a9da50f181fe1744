"""What a program does not hold by itself: patterns of `PROPERTY PATH`, and why.

READS: it does not read that from what a far mount has written. WRITES: a far mount cannot read that from what it has written. A
far mount with a new cache has no line here. `sometimes: ` begins the reason of a difference that is not always there.
"""

NO_LINKS = {
    "kind link*": "it shows a link as a file with the target in it",
    "target link*": "it shows a link as a file with the target in it",
}
NO_SPECIAL_FILES = {f"kind {kind}": "it shows special files as empty ones" for kind in ("pipe", "socket", "character", "block")} | {
    "device *": "it shows special files as empty ones"
}
NO_EMPTY_DIRECTORIES = {f"there {path}": "it makes no directories in the bucket" for path in ("nothing", "sticky", "sticky/nothing", "dated")}
NO_LINKS_WRITTEN = {"there link*": "it makes no links"}
NO_SPECIAL_FILES_WRITTEN = {f"there {kind}": "it makes no special files" for kind in ("pipe", "socket", "character", "block")}
# Of files and directories in directories.
DIRECTORIES = ("directory", "directory/private", "beside", "odd", "odd/with space in it")
NO_TIMES = {"time *": "it has the time of the object alone", "nanoseconds *": "it has the time of the object alone"}
PERCENT = "it percent-encodes values, which other clients see as they are"
PACKED = "a value that no header holds is in margay-x"
WORDS = "it does not decode the words of RFC 2047"
WHOLE_SECONDS = "it writes whole seconds"

READS = {
    "s3fs": {
        "time before-1970": "it reads no negative times",
        "xattr *": "it reads attributes from its own header alone",
        "device *": "it keeps no numbers of devices",
    },
    "rclone-copy": NO_LINKS
    | NO_SPECIAL_FILES
    | NO_EMPTY_DIRECTORIES
    | {f"{name} {path}": "it keeps no attributes of directories" for name in ("mode", "time") for path in DIRECTORIES}
    | {
        "owner directory/private": "it keeps no attributes of directories",
        "mode set-id": "it sets the nine lowest bits",
        "xattr binary": PACKED,
        "xattr umlaut": WORDS,
    },
    "rclone-mount": NO_LINKS
    | NO_SPECIAL_FILES
    | {
        "mode *": "its mount has one mode for all files",
        "owner *": "its mount has one owner for all files",
        "xattr *": "its mount has no attributes",
        **{f"time {path}": "it keeps no times of directories" for path in (*DIRECTORIES, "nothing", "sticky", "sticky/nothing", "dated")},
        "nanoseconds sticky/nothing": "it keeps no times of directories",
        "nanoseconds dated": "it keeps no times of directories",
    },
    "goofys": NO_LINKS
    | NO_SPECIAL_FILES
    | NO_TIMES
    | {
        "mode *": "it has one mode for all files",
        "owner *": "it has one owner for all files",
        "xattr binary": PACKED,
        "xattr umlaut": WORDS,
        "xattr sticky/nothing": "it reads no attributes of directories",
    },
    "tigrisfs": {
        "mode set-id": "it keeps the nine lowest bits",
        "mode sticky": "it keeps the nine lowest bits",
        **{f"{name} {path}": "it reads no time with a fraction" for name in ("time", "nanoseconds") for path in ("precise", "third", "large", "sticky/nothing", "dated")},
        "time before-1970": "it reads no negative times",
        "xattr binary": PACKED,
        "xattr percent": "it takes values for percent-encoded",
        "xattr umlaut": WORDS,
        "target link-long": "it reads targets from the metadata, where those of more than 128 bytes are not",
    },
}

WRITES = {
    "s3fs": {"device *": "it keeps no numbers of devices"},
    "rclone-copy": NO_EMPTY_DIRECTORIES
    | NO_SPECIAL_FILES_WRITTEN
    | {
        "there link*": "it makes NAME.rclonelink of a link",
        **{f"time {path}": "it keeps no attributes of directories" for path in DIRECTORIES},
        "mode directory/private": "it keeps no attributes of directories",
        "owner directory/private": "it keeps no attributes of directories",
        "xattr binary": "it leaves values out that no header holds",
    },
    "rclone-mount": NO_EMPTY_DIRECTORIES
    | NO_LINKS_WRITTEN
    | {
        "there character": "it makes no special files",
        "there block": "it makes no special files",
        "kind pipe": "it makes a file of a pipe",
        "kind socket": "it makes a file of a socket",
        "time pipe": "it makes a file of a pipe",
        "time socket": "it makes a file of a socket",
        "mode *": "its mount ignores modes",
        "owner *": "its mount ignores owners",
        "xattr *": "its mount has no attributes",
        **{f"time {path}": "it keeps no times of directories" for path in DIRECTORIES},
    },
    "goofys": NO_LINKS_WRITTEN
    | NO_SPECIAL_FILES_WRITTEN
    | NO_TIMES
    | {
        "mode *": "it ignores modes",
        "owner *": "it ignores owners",
        "xattr binary": PERCENT,
        "xattr percent": PERCENT,
        "xattr umlaut": "it sends the bytes of a value as letters of Latin-1",
        "xattr sticky/nothing": "it sets no attributes of directories",
    },
    "tigrisfs": {
        "mode set-id": "it keeps the nine lowest bits",
        "mode sticky": "it keeps the nine lowest bits",
        "mode directory/private": "sometimes: it does not write the mode of a directory that got an owner",
        **{f"nanoseconds {path}": WHOLE_SECONDS for path in ("precise", "third", "large", "sticky/nothing", "dated")},
        **{f"time {path}": "sometimes: it writes no times of directories" for path in (*DIRECTORIES, "nothing", "sticky", "sticky/nothing", "dated")},
        "xattr binary": PERCENT,
        "xattr percent": PERCENT,
    },
    "aws": NO_SPECIAL_FILES_WRITTEN | {"xattr *": "AWS' gateways have no attributes"},
}
