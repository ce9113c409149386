package conn

import "testing"

func TestVersionsWithKnownFaults(t *testing.T) {
	for version, want := range map[string]bool{
		"6.2.19": true, "6.2.20": false, "7.0.15": true, "7.2.10": true, "7.2.11": false, "7.4.5": true, "7.4.6": false,
		"8.0.3": true, "8.0.4": false, "8.2.1": true, "8.2.2": false, "8.4.0": false, "9.0.0": false, "255.255.255": false,
		"odd": false, "": false,
	} {
		if got := hasVulnerableLua(parseInfo("", "redis_version:"+version+"\r\n")); got != want {
			t.Errorf("%s: %v", version, got)
		}
	}
	if hasVulnerableLua(parseInfo("", "redis_version:7.2.4\r\nvalkey_version:8.0.1\r\n")) {
		t.Error("Valkey is judged by the version that it is compatible with")
	}
}
