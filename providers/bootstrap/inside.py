"""What a job could reach from a machine: metadata service, cloud identity, GitHub. Prints one JSON object.

A canary's launch data carries this text (`autoscaler.onboarding.canary`); the machine runs it as a job's user.
`metadata` and `identity` name what was found, `github` is the status of an answer, or why there was none.

Standard library only, Python 3.9 on.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request

AWS, GOOGLE = "http://169.254.169.254", "http://metadata.google.internal/computeMetadata/v1"
AZURE_TOKEN = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://management.azure.com/"
METADATA = {
    "EC2": (AWS + "/latest/api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}),
    "Google": (GOOGLE + "/instance/id", "GET", {"Metadata-Flavor": "Google"}),
    "Azure": (AWS + "/metadata/instance?api-version=2021-02-01", "GET", {"Metadata": "true"}),
}
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_SECRET")
POD_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
GITHUB = "https://api.github.com/zen"


def ask(
    url: str, method: str = "GET", headers: dict[str, str] | None = None, timeout: float = 3
) -> tuple[int, str]:
    """Status and text; 0 and the reason where nobody answered."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({})) if "169.254" in url else None
    opener = direct.open if direct else urllib.request.urlopen
    try:
        with opener(urllib.request.Request(url, None, headers or {}, method=method), timeout=timeout) as answer:
            return answer.status, answer.read(4096).decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, ""
    except Exception as error:
        return 0, str(error)


def identity(token: str) -> list[str]:
    """Names of credentials that a job would find."""
    found = [name for name in SECRETS if os.environ.get(name)]
    roles = AWS + "/latest/meta-data/iam/security-credentials/"
    if token and ask(roles, headers={"X-aws-ec2-metadata-token": token})[0] == 200:
        found.append("the instance's role")
    account = GOOGLE + "/instance/service-accounts/default/token"
    if ask(account, headers={"Metadata-Flavor": "Google"})[0] == 200:
        found.append("the instance's service account")
    if ask(AWS + AZURE_TOKEN, headers={"Metadata": "true"})[0] == 200:
        found.append("a managed identity")
    if os.path.exists(POD_TOKEN):
        found.append("a service-account token")
    return found


def main() -> None:
    seen, token = [], ""
    for name, (url, method, headers) in METADATA.items():
        status, text = ask(url, method, headers)
        if status == 200:
            seen.append(name)
            token = text if name == "EC2" else token
    status, why = ask(GITHUB, timeout=15)
    print(json.dumps({"metadata": seen, "identity": identity(token), "github": status or why[:150]}))


if __name__ == "__main__":
    main()
