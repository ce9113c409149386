package authz

import "fmt"

// Permission is one thing that can be allowed.
type Permission uint8

// Permissions. All but ReadCluster, AdministerCluster and Relay are asked for in a namespace.
const (
	// Anyone: whoever is authenticated.
	Anyone Permission = iota
	// ReadJobs: see jobs, runs, dead letters, payloads and limits of queues.
	ReadJobs
	// OperateJobs: pause, resume, run, cancel, hint, backfill, redrive.
	OperateJobs
	// EditJobs: create, update, delete.
	EditJobs
	// Work: take attempts from queues, with their payloads, and report results.
	Work
	// AdministerJobs: set limits of queues, export and restore jobs with their
	// states.
	AdministerJobs
	// ReadCluster: see nodes, shards and workers; asked for everywhere.
	ReadCluster
	// AdministerCluster: audit and repair shards; asked for everywhere.
	AdministerCluster
	// Relay: speak as a node to other nodes; asked for everywhere.
	Relay
	// AnyRole: whoever has a role, in whichever namespace.
	AnyRole
	// ReadQueues: see how much there is to do in queues, and nothing of the jobs.
	ReadQueues
	permissions
)

var permissionNames = [permissions]string{
	Anyone: "anyone", ReadJobs: "read jobs", OperateJobs: "operate jobs", EditJobs: "edit jobs", Work: "work",
	AdministerJobs: "administer jobs", ReadCluster: "read cluster", AdministerCluster: "administer cluster", Relay: "relay",
	ReadQueues: "read queues", AnyRole: "any role",
}

func (p Permission) String() string {
	if p < permissions {
		return permissionNames[p]
	}
	return fmt.Sprintf("permission %d", uint8(p))
}

// Role is a set of permissions with a name.
type Role string

// Roles. Each of the first three has what the one before it has.
const (
	Viewer   Role = "viewer"
	Operator Role = "operator"
	Editor   Role = "editor"
	Worker   Role = "worker"
	Admin    Role = "admin"
	Node     Role = "node"
	Scaler   Role = "scaler"
)

// roles are what each role allows. Workers and nodes can do nothing else: their
// credentials lie on many machines. An autoscaler's lie with somebody else.
var roles = map[Role][]Permission{
	Viewer:   {ReadJobs, ReadQueues, ReadCluster},
	Operator: {ReadJobs, ReadQueues, ReadCluster, OperateJobs},
	Editor:   {ReadJobs, ReadQueues, ReadCluster, OperateJobs, EditJobs},
	Worker:   {Work},
	Admin:    {ReadJobs, ReadQueues, ReadCluster, OperateJobs, EditJobs, AdministerJobs, AdministerCluster},
	Node:     {Relay},
	Scaler:   {ReadQueues},
}

// Roles lists all roles, the weaker ones of people first.
func Roles() []Role { return []Role{Viewer, Operator, Editor, Admin, Worker, Node, Scaler} }

// Valid tells whether there is such a role.
func (r Role) Valid() bool { return roles[r] != nil }

// Has tells whether the role includes a permission.
func (r Role) Has(p Permission) bool {
	if p == Anyone || p == AnyRole {
		return r.Valid()
	}
	for _, q := range roles[r] {
		if p == q {
			return true
		}
	}
	return false
}
