// Package config fills the flags of a command from the environment and from a
// YAML file, so that every setting has one name, one help text and one type.
//
// A flag takes the first value there is of:
//
//  1. the command line: --max-payload 1048576
//  2. the environment: FERMATA_MAX_PAYLOAD=1048576
//  3. the file named by --config or FERMATA_CONFIG: max-payload: 1048576
//  4. its default
//
// A flag may have more names, of applications that have the same setting ([AlsoCalled]): they are
// names of a variable and keys of the file, as they are.
//
// An empty variable counts as unset. Lists are separated by commas in the
// environment (by lines for flags that take one value each) and are sequences
// in the file; maps are k=v,k=v in the environment and mappings in the file.
//
// Invariants:
//
//  1. Nothing is ignored: an unknown key, a key that occurs twice, a value of
//     the wrong type is an error that names the key and where it stands. Unknown variables
//     may belong to other programs; [UnreadVariables] finds the misspelt ones.
//  2. All faults are reported at once.
//  3. Secrets are read from files ([ReadSecretFile]); no error shows one.
package config
