// Package config sets the flags of a command from environment variables and from a
// YAML file. So every setting has one name, one help text and one type.
//
// A flag gets the first value that is set by:
//
//  1. the command line: --max-payload 1048576
//  2. the environment: FERMATA_MAX_PAYLOAD=1048576
//  3. the context in use, for commands with --context: one of the named sets of values in the file
//  4. the file named by --config or FERMATA_CONFIG: max-payload: 1048576
//  5. its default
//
// Commands with --context read the user's own file ([DefaultFile]) if --config names none. The file has the contexts,
// and the one that is used where --context names none:
//
//	current-context: production
//	contexts:
//	  production:
//	    address: [node.example.com:7070]
//
// Durations have weeks and days, too: 2w, 7d, 1d12h. A day has 24 hours.
//
// A flag may have further names, those of other applications for the same setting
// ([AddAliases]). They are used unchanged as variable names and as keys of the file.
//
// An empty variable counts as unset. Lists are separated by commas in the
// environment (by lines for flags that take one value each) and are sequences
// in the file; maps are k=v,k=v in the environment and mappings in the file.
//
// Invariants:
//
//  1. Nothing is ignored: an unknown key, a key that occurs twice, a value of
//     the wrong type is an error with the key and its position. Unknown variables may
//     belong to other programs; [UnreadVariables] finds the misspelt ones.
//  2. All errors are reported together.
//  3. The user's own file is read only if it has mode 0600 and belongs to the user.
//  4. Secrets are read from files ([ReadSecretFile]); no error contains one.
package config
