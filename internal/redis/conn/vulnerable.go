package conn

import (
	"fmt"

	"github.com/fermata-io/fermata/internal/redis/redisacl"
)

// firstSafeReleases are the first releases of each line of Redis without the known faults of
// its Lua engine (CVE-2025-49844 is the gravest of them): a user who may call EVAL can
// take over a server that is older. Lines that are not listed and older have no such
// release; distributions may have mended theirs without another version.
var firstSafeReleases = []struct{ major, minor, patch int }{
	{6, 2, 20}, {7, 2, 11}, {7, 4, 6}, {8, 0, 4}, {8, 2, 2},
}

// hasVulnerableLua tells whether a version of Redis is below those. Valkey, and what does
// not say its version in three numbers, is not judged.
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

// luaFinding warns of a server whose scripts are a way in.
func luaFinding(i serverInfo) Finding {
	return Finding{Warning, "lua_cve", i.addr, "Redis " + i.text("redis_version") + " by its version has known faults in its Lua engine (CVE-2025-49844): " +
		"who may run scripts can take over the server; upgrade to 7.2.11, 7.4.6, 8.0.4, 8.2.2 or later, " +
		"or make sure that your distribution has mended it; see " + redisacl.Doc}
}
