"""What Horovod's parts for torch and TensorFlow share: exceptions, elastic states, process sets."""
