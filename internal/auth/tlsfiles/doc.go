// Package tlsfiles configures TLS from PEM files of certificates, keys and authorities, and
// reloads them while the process runs.
//
// # Model
//
// A [Source] has the files of one use: a listener, the links between nodes, connections to
// Redis. Every handshake uses the current contents of the files. It reads them again if the
// last read is more than a second ago. It follows links, so that both a rename and the
// replaced links of Kubernetes are detected. Open connections do not change.
//
// # Invariants
//
//  1. Certificate, key and authority change together or not at all: while the files do not
//     match each other or cannot be read, the last valid contents stay active. That is
//     logged once for each change of the files.
//  2. An authority that was removed from the files is no longer accepted: every handshake
//     verifies against the active contents, and no session is resumed.
//  3. A handshake waits at most for its own read of the files, never for that of another
//     handshake.
//  4. The host name does not authenticate a peer. The authority and a name in the
//     certificate do, in both directions.
//  5. No key material is in a log, an error or a metric.
package tlsfiles
