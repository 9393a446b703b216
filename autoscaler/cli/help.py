"""The texts of `autoscaler --help`. Of each command's text the first line is its summary."""

TOP = """\
Runs GitHub Actions self-hosted runners on the credits, machines and money that a project was given:
one fresh machine a job, on the offer and from the fund that suit it best, and it says why."""

TOP_END = """\
examples:
  autoscaler demo --jobs 200 --exit             the whole path on this machine, with nothing else installed
  autoscaler policy check policy.yaml           is this policy file right?
  autoscaler serve --policy policy.yaml         the daemon
  autoscaler why 31415926535                    why does this job wait, or why did it run there at that price?

exit codes:
  0  done, and all is well
  1  problems were found or the daemon cannot be asked; stderr says what to do
  2  wrong usage

units:
  amounts are US dollars with six places in --json, times RFC 3339 in UTC, names ending in _seconds are seconds

environment of the daemon (`serve`, `verify`):
  AUTOSCALER_POLICY               the policy file
  AUTOSCALER_FLEET                name of this installation (default: autoscaler)
  AUTOSCALER_LISTEN               HOST:PORT of webhooks, callbacks, dashboard and API (default: 127.0.0.1:8080)
  AUTOSCALER_PUBLIC_URL           where machines reach it (default: http:// and the former)
  AUTOSCALER_REDIS_URL            redis://, rediss://, unix://, redis+sentinel://, or embedded:DIR
                                  (default: embedded:.autoscaler/redis)
  AUTOSCALER_FLEET_KEY_FILE       at least 32 random bytes: callback tokens and JIT encryption
  AUTOSCALER_GITHUB_URL           base of the REST API (default: https://api.github.com)
  AUTOSCALER_GITHUB_APPS_FILE     YAML list of {app_id, private_key_file}
  AUTOSCALER_WEBHOOK_SECRET_FILE  one secret a line, two while rotating; read again when it changes
  AUTOSCALER_API_TOKENS_FILE      YAML list of {name, sha256, scope: read|write}; without it reads are open
                                  and switches are refused

environment of the commands that ask a daemon:
  AUTOSCALER_API_URL              where it listens (default: http://127.0.0.1:8080)
  AUTOSCALER_API_TOKEN_FILE       file with your bearer token

`autoscaler COMMAND --help` tells more of each command."""

ROLE = """\
ingest takes webhooks only, scheduler takes none, all does both (default);
of several replicas that schedule, one leads at a time"""

POLL = """\
ask this repository for jobs each half minute instead of waiting for webhooks:
for a daemon without a public address; may be given several times"""

SPEED = "times as fast as it was recorded; 0: as fast as the receiver answers (default: 1)"

TARGET = "provider:NAME, type:NAME or all"

POLICY = "Check, explain and import policy files. None of these asks a daemon, a cloud or GitHub."

_ASKS = "\nAsks the daemon at AUTOSCALER_API_URL."
_SWITCH = "\nNeeds a token with scope write in AUTOSCALER_API_TOKEN_FILE. Takes effect within a second."

_HOST = """
Asks the daemon at AUTOSCALER_API_URL. Needs a token with scope write in AUTOSCALER_API_TOKEN_FILE, or the join
token of the sponsor who joined the host."""

HOST = "Offer a machine of yours to a daemon, and take it back."

RECORD = "Record events, so that policies can be tried on them. `serve --record DIR` does it as they come."

PROVIDER = "See whether an account is fit for the fleet, before and while it is used."

CANARY_LISTEN = "where the canary's reports come in (default: AUTOSCALER_LISTEN)"

CANARY_URL = "how machines reach that (default: AUTOSCALER_PUBLIC_URL)"

COMMANDS = {
    "backtest": """\
say what a policy would have cost, and how long jobs would have waited, on recorded events

The recorded jobs are given to the same scheduler that runs live, in simulated time, with simulated clouds. Two
policies are compared, and the difference is explained. Progress is on stderr; the same input gives the same
output. Where `serve --record` wrote the events, boots and refusals are as they were measured then, and
--compare-live sets simulated waits and cost beside what happened.

  autoscaler backtest events.jsonl.gz --policy now.yaml --policy next.yaml --report difference.html
  autoscaler backtest events.jsonl.gz --policy now.yaml --compare-live
  autoscaler backtest --from-github my-org/app --since 7d""",
    "record from-github": """\
write the history of a repository as an event file

Public ones need no token; AUTOSCALER_GITHUB_TOKEN_FILE names the file with one. It stays within the rate limit,
and a call that was stopped is taken up again by the next one with the same file.""",
    "record from-csv": """\
write tables of jobs as an event file

One row a job: queued_at (or created_at) and labels are needed; id, repository, started_at, completed_at (or
queue_seconds and duration_seconds), conclusion, run_attempt, name, workflow_name, event, fork and runner_name are
used where they are there, under these names or likely others, such as those of GitHub's API and of PyTorch's
default.workflow_job. Times are ISO 8601, or Unix time in s, ms, us or ns. Rows that cannot be used are warnings.

  autoscaler record from-csv jobs.csv --repository my-org/app --time-zone America/Los_Angeles""",
    "serve": """\
run the daemon

SIGTERM drains: webhooks end, calls under way finish, another replica may lead. SIGHUP reads the policy again; a
bad one is reported and the old one stays. A bad policy at the start, a missing file or a used port end it with 1;
Redis, GitHub or a cloud that is away does not: it waits for them. Its settings are in the environment, see
`autoscaler --help`.""",
    "demo": """\
run everything on this machine, with nothing else installed

Embedded Valkey, a GitHub stand-in, several simulated providers with funds, signed webhooks over HTTP, and the real
daemon with its dashboard. --speed scales the daemon's clock, not sockets. With --exit it ends with 0 when every
job ran and nothing was left behind, else with 1.

  autoscaler demo                               look at the dashboard until Ctrl-C
  autoscaler demo --jobs 50 --exit --json       one JSON document""",
    "policy check": """\
say whether a policy file can be used

Errors name file, line and key, and end it with 1. Warnings (no repository allowed, a fund that is
closed, subnets missing) end it with 0.""",
    "policy schema": """\
print the JSON Schema of the policy file, for editors""",
    "policy explain": """\
say what a policy would do with one job

Every runner type that has the job's labels and lets it in, with every offer in rank order: the terms of its score
in dollars a job, or its refusal. Reads the file and nothing else; what it must assume is said at the end.

  autoscaler policy explain policy.yaml --labels self-hosted,linux,linux.large --repository octo/engine""",
    "policy import-scale-config": """\
turn PyTorch's scale-config.yml into a policy

The policy on stdout, what could not be carried over on stderr. Variant V of type T becomes V.T.

  autoscaler policy import-scale-config scale-config.yml --repositories 'pytorch/*' > policy.yaml""",
    "status": f"""\
show the fleet on one page: jobs, runners, funds, what waits and why{_ASKS}""",
    "jobs": f"""\
list jobs, newest first

The record of a job that ended is kept for a day.{_ASKS}""",
    "runners": f"""\
list runners, newest first{_ASKS}""",
    "providers": f"""\
list providers: their runners, caps, and why one is closed now{_ASKS}""",
    "funds": f"""\
list funds: what is left, held and spent, and why one is closed now{_ASKS}""",
    "funds set": f"""\
say how much of a fund was spent by now, all in all

As the vendor's own billing has it, our own machines included. A fund that the daemon has no record of is closed
until its spend is known.

  autoscaler funds set gcp-gift --spent '31500 USD'
{_ASKS}
Needs a token with scope write in AUTOSCALER_API_TOKEN_FILE.""",
    "funds statement": f"""\
print what a fund paid for in a month, by repository: for its sponsor

  autoscaler funds statement gcp-gift --month 2026-11
{_ASKS}""",
    "why": f"""\
say why a job waits, or why it ran where it did at that price; or what spent and holds a fund

  autoscaler why 31415926535
  autoscaler why fund:gcp-gift

The answer in one sentence, then the evidence on one screen: its runner types and pool, every offer in rank order
with its refusal, the fund that pays, and how long each stage took. --json is
GET /api/v1/jobs/JOB_ID or /api/v1/funds/NAME.{_ASKS}""",
    "pause": f"""\
launch nothing, in the whole fleet; what runs goes on{_SWITCH}""",
    "resume": f"""\
end a pause{_SWITCH}""",
    "drain": f"""\
place nothing more on a provider or runner type; running jobs finish

  autoscaler drain provider:aws{_SWITCH}""",
    "undrain": f"""\
end a drain{_SWITCH}""",
    "verify": """\
list every disagreement between store, clouds and GitHub

Reads everything and changes nothing, with the settings of `serve`. What is found is looked at again after 15 s,
and only what is still so is listed. 1 if anything is.""",
    "host join": """\
offer this machine to a daemon: check it, register it, and serve it from now on

TOKEN is your join token, from the daemon's operator; the policy must list this host. Nothing needs to reach this
machine: it calls URL. Run as root with systemd, where it installs the unit autoscaler-host; without systemd the
command goes on and serves the host itself. Needs nothing installed but Python; without this package:

  curl -fsS URL/host/v1/program | sudo python3 - join URL TOKEN""",
    "host run": """\
serve this machine, which has joined: what the unit autoscaler-host runs

Jobs go on when it stops, and it finds them when it starts again.""",
    "host pause": f"""\
place nothing more on a donated host; running jobs finish{_HOST}""",
    "host resume": f"""\
end a host's pause{_HOST}""",
    "host keep": f"""\
keep what a failed machine leaves on a host, for debugging

For so many minutes its slot is out of use; 0 ends it. The log and the slot say where it lies.

  autoscaler host keep rocm-lab/gpu1 30{_HOST}""",
    "provider check": """\
say what an account lacks: permissions, image, network, quota, price age, clock

With the policy and settings of `serve`; a running daemon is not asked. Each line is ok or FAILED, with why and
what to do; 1 if any failed. --canary then launches the cheapest machine that the policy allows there, at your cost
for some minutes. It times each stage, tells what a job could reach from inside, and is destroyed whatever happens,
Ctrl-C too. It gets no job. While a daemon runs on this host, give the canary a port of its own.

  autoscaler provider check aws --policy policy.yaml
  autoscaler provider check aws --canary --listen 0.0.0.0:8081 --url http://ci.example.org:8081""",
    "replay": """\
send recorded deliveries to a webhook receiver, signed, with the recorded spacing

A load test for any receiver. Ends with 1 when a delivery was not answered with 2xx. Broken lines of the file are
warnings.

  autoscaler replay day.jsonl.gz --to http://127.0.0.1:8080/webhooks/github --secret-file secret --speed 60""",
}
