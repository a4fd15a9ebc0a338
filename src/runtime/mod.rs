//! What every process of the project needs: tasks, leader lease, telemetry, metrics, health.
