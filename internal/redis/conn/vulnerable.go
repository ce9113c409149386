package conn

import (
	"fmt"

	"github.com/fermata-io/fermata/internal/redis/redisacl"
)

// firstSafeReleases are the first releases of each line of Redis without the known vulnerabilities of its
// Lua engine (CVE-2025-49844 is the most serious): a user with EVAL can take over an older server. Older
// lines that are not listed have no safe release. Distributions may have patched a version without
// changing its number.
var firstSafeReleases = []struct{ major, minor, patch int }{
	{6, 2, 20}, {7, 2, 11}, {7, 4, 6}, {8, 0, 4}, {8, 2, 2},
}

// hasVulnerableLua reports whether a version of Redis is older than those. It is false for Valkey and for
// versions that are not three numbers.
func hasVulnerableLua(i serverInfo) bool {
	if i.has("valkey_version") {
		return false
	}
	var v struct{ major, minor, patch int }
	if n, err := fmt.Sscanf(i.text("redis_version"), "%d.%d.%d", &v.major, &v.minor, &v.patch); n != 3 || err != nil {
		return false
	}
	for _, s := range firstSafeReleases {
		if v.major == s.major && v.minor == s.minor {
			return v.patch < s.patch
		}
	}
	last := firstSafeReleases[len(firstSafeReleases)-1]
	return v.major < last.major || v.major == last.major && v.minor < last.minor
}

// luaFinding warns of a server with a vulnerable Lua engine.
func luaFinding(i serverInfo) Finding {
	return Finding{Warning, "lua_cve", i.addr,
		"Redis " + i.text("redis_version") + " by its version has known faults in its Lua engine (CVE-2025-49844): " +
			"who may run scripts can take over the server; upgrade to 7.2.11, 7.4.6, 8.0.4, 8.2.2 or later, " +
			"or make sure that your distribution has mended it; see " + redisacl.Doc}
}
